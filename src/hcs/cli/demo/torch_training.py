"""Where PyTorch is installed, a real framework trains as well, outside the emulated cards and saying so."""

import asyncio
import importlib.util
import os
import sys
import tempfile

import msgspec

from hcs.cli.demo.stage import Stage
from hcs.sandbox.files import examples_directory


async def train_if_installed(stage: Stage) -> None:
    """Run ``examples/train_torch.py`` on whatever PyTorch finds; nothing where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        stage.say(
            "[dim]PyTorch is not installed: train.py speaks to the emulated drivers itself, this is not PyTorch[/]"
        )
        return
    with tempfile.TemporaryDirectory(prefix="hcs-torch-") as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(examples_directory() / "train_torch.py"),
            cwd=folder,
            env={**os.environ, "CHECKPOINT_DIR": folder},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
    lines = [msgspec.json.decode(line) for line in output.splitlines() if line.startswith(b"{")]
    done = next((line for line in lines if line["event"] == "done"), None)
    device = lines[0]["device"] if lines else "nothing"
    stage.claim(f"PyTorch itself, not emulated, trains on {device} beside the scenes", done is not None)
    stage.facts["torch"] = {
        "device": device,
        "version": lines[0]["torch"] if lines else "",
        "loss": (done or {}).get("loss"),
    }
