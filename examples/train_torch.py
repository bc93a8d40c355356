"""Train a small network with PyTorch on whatever accelerator it finds, and keep checkpoints.

Imports nothing of HCS: on CUDA, Ascend (torch_npu) and Cambricon (torch_mlu) the device appears as the framework shows
it, and without one the CPU serves. Resumes from HCS_RESUME_FROM like train.py; one JSON line an event on stdout.

    python3 train_torch.py --steps 200 --checkpoint-every 50
"""

import argparse
import importlib
import json
import os
import re
import sys
from pathlib import Path

import torch


def find_device() -> torch.device:
    """The first accelerator that answers, else the CPU."""
    for name, plugin in (("cuda", ""), ("npu", "torch_npu"), ("mlu", "torch_mlu")):
        if plugin:
            try:
                importlib.import_module(plugin)
            except ImportError:
                continue
        backend = getattr(torch, name, None)
        if backend is not None and backend.is_available():
            return torch.device(name, 0)
    return torch.device("cpu")


def say(event: str, **facts: object) -> None:
    """One event, one line."""
    print(json.dumps({"event": event, **facts}), flush=True)


def newest(place: Path) -> Path | None:
    """The checkpoint itself, or the newest complete one in a directory."""
    if place.is_file():
        return place
    found = [path for path in place.glob("step-*.pt") if re.fullmatch(r"step-\d+\.pt", path.name)]
    return max(found, key=lambda path: int(path.stem[5:]), default=None)


def main() -> int:
    """Train; 0 when done, 1 when the device failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps in all")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between checkpoints")
    options = parser.parse_args()
    folder = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
    folder.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(1)
    device = find_device()
    say("start", device=str(device), torch=torch.__version__, emulated=False)
    inputs = torch.randn(512, 16, device=device)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    step = 0
    resume = os.environ.get("HCS_RESUME_FROM")
    checkpoint = newest(Path(resume)) if resume else None
    if checkpoint is not None:
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = int(state["step"])
        say("resume", step=step, checkpoint=str(checkpoint))
    loss = torch.zeros(())
    try:
        while step < options.steps:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % options.checkpoint_every == 0:
                target = folder / f"step-{step:06d}.pt"
                partial = target.with_name(target.name + ".partial")
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
                partial.replace(target)
                say("checkpoint", step=step, loss=round(loss.item(), 6))
    except RuntimeError as error:
        say("error", message=str(error).splitlines()[0])
        return 1
    say("done", step=step, loss=round(loss.item(), 6))
    return 0


if __name__ == "__main__":
    sys.exit(main())
