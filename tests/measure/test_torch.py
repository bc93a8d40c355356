"""The models have the published number of parameters and give numbers, in a real PyTorch on the processor."""

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from hcs.measure.backends import BackendError  # noqa: E402
from hcs.measure.choice import backends, find_unit  # noqa: E402
from hcs.measure.decoder import WIDE, Decoder  # noqa: E402
from hcs.measure.models import Sizes, measure_models  # noqa: E402
from hcs.measure.networks import resnet50, yolov8m  # noqa: E402
from hcs.measure.suite import Figure, measure  # noqa: E402
from hcs.measure.torch_processor import TorchProcessor, find_torch_processor  # noqa: E402

torch.set_num_threads(1)  # more would wait for each other where others work as well

PLAIN = "processor: 0\nmodel name: A plain one\nflags: sse2\n"


def count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_resnet50_has_the_published_parameters() -> None:
    """torchvision's table of models: 25,557,032."""
    with torch.device("meta"):
        assert count(resnet50(torch)) == 25_557_032


def test_yolov8m_has_the_published_parameters() -> None:
    """Ultralytics' table of models: 25.9 M; its summary says 25,902,640, of which 16 are the fixed sum over boxes."""
    with torch.device("meta"):
        model = yolov8m(torch)
        assert count(model) == 25_902_640 - 16
        shapes = [tuple(part.shape) for part in model(torch.empty(1, 3, 640, 640))]
    assert shapes == [(1, out, side, side) for side in (80, 40, 20) for out in (64, 80)]


def test_the_decoder_has_llama_3_8bs_parameters() -> None:
    """Llama 3 8B has 8,030,261,248: 32 layers, two tables of 128,256 words, and a norm."""
    layer = Decoder(torch, "meta", layers=1, prompt=4).parameters
    assert 32 * layer + 2 * 128_256 * WIDE + WIDE == 8_030_261_248


def test_a_token_sees_the_prompt_before_it() -> None:
    """Writing after a prompt gives what reading it with that token at its end gives: the cache is right."""
    torch.manual_seed(1)
    short = Decoder(torch, "cpu", layers=1, prompt=4)
    whole = Decoder(torch, "cpu", layers=1, prompt=5)
    whole.layers, whole.norms = short.layers, short.norms
    tokens = torch.randn(1, 5, WIDE).to(torch.bfloat16)
    with torch.inference_mode():
        short.read(tokens[:, :4])
        one = short.write(tokens[:, 4:]).float()
        other = whole.read(tokens)[:, 4:].float()
    assert torch.allclose(one, other, atol=0.05, rtol=0.05)
    assert not torch.allclose(one, tokens[:, 4:].float(), atol=0.05, rtol=0.05)


def test_yolo_keeps_the_size_of_its_values() -> None:
    model = yolov8m(torch).eval()
    with torch.inference_mode():
        sizes = [float(part.std()) for part in model(torch.randn(1, 3, 64, 64))]
    assert all(0.01 < size < 1000 for size in sizes)


def test_whole_models_run_on_the_processor() -> None:
    (backend,) = find_torch_processor()
    found = measure_models(
        backend, 0, sizes=Sizes(batch=2, prompt=8, layers=1, seconds=0.01, resnet_side=32, yolo_side=32)
    )
    assert [type(outcome) for outcome in found] == [Figure] * 4, found
    assert all(outcome.value > 0 for outcome in found if isinstance(outcome, Figure))


def test_the_suite_runs_on_the_processor_and_says_whose_clock_it_is() -> None:
    (backend,) = find_torch_processor()
    assert backend.name.endswith("on the processor, wall clock")
    found = measure(backend, 0, sizes=(32, 64), copied=1 << 16, most_seconds=0.01)
    assert {outcome.metric for outcome in found} >= {"gemm_fp32", "mem_bandwidth"}
    assert all(isinstance(outcome, Figure) for outcome in found), found


def test_a_processor_is_no_card_and_multiplies_what_it_has_hardware_for(tmp_path: Any) -> None:
    description = tmp_path / "cpuinfo"
    description.write_text(PLAIN)
    backend = TorchProcessor(torch, cpuinfo=description)
    assert not backend.is_card
    assert backend.units()[0].name == "A plain one"
    assert backend.precisions(0) == ["fp32"]
    description.write_text(PLAIN.replace("sse2", "sse2 amx_bf16 avx512_fp16"))
    assert TorchProcessor(torch, cpuinfo=description).precisions(0) == ["fp16", "bf16", "fp32"]
    assert find_unit([backend], "A plain one") is None
    with pytest.raises(BackendError, match="one processor"):
        backend.copy(1, 1, 1)


def test_without_a_card_there_is_a_reason() -> None:
    if torch.cuda.is_available():
        pytest.skip("PyTorch is not installed without a card here")
    reasons: list[str] = []
    found = backends(None, reasons.append)
    assert [backend.is_card for backend in found] == [False, False]
    assert any(reason.startswith(f"PyTorch {torch.__version__} sees no card") for reason in reasons)
