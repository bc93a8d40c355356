"""A small training program that knows several vendors' drivers and nothing of the cluster it runs in.

It fits a linear model by gradient descent. Parameters and data live in device memory: every step copies them out
through the driver, computes in Python, and copies the new parameters back. It checkpoints, and continues from a
checkpoint. The same file runs on every vendor; each line it prints is one JSON object. Needs only the standard library.

Exit status: 0 done, 1 the driver reported an error, 2 wrong use or no driver, 3 out of device memory.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import random
import re
import struct
import sys
import time
from pathlib import Path
from typing import Protocol

FEATURES = 8
SAMPLES = 64
BATCHES = 4
LEARNING_RATE = 0.05
SEED = 20240229

EXIT_DRIVER_ERROR = 1
EXIT_USAGE = 2
EXIT_OUT_OF_MEMORY = 3

CHECKPOINT_NAME = re.compile(r"step-(\d+)\.json")


class DriverError(Exception):
    """A driver call failed; carries the driver's own code and its name."""

    def __init__(self, call: str, code: int, name: str, out_of_memory: bool) -> None:
        super().__init__(f"{call} failed with {code} ({name})")
        self.call = call
        self.code = code
        self.name = name
        self.out_of_memory = out_of_memory
        self.requested_bytes = 0


class Device(Protocol):
    """What the training needs of a card."""

    vendor: str

    def name(self) -> str: ...
    def memory(self) -> tuple[int, int]: ...  # total bytes, free bytes
    def allocate(self, size: int) -> int: ...
    def upload(self, address: int, data: bytes) -> None: ...
    def download(self, address: int, size: int) -> bytes: ...
    def free(self, address: int) -> None: ...
    def close(self) -> None: ...


class CudaDevice:
    """The first visible NVIDIA card, through the CUDA driver API."""

    vendor = "nvidia"
    OUT_OF_MEMORY = 2

    def __init__(self, driver: ctypes.CDLL) -> None:
        self._driver = driver
        self._device = ctypes.c_int()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._driver, function)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
            name = text.value.decode() if text.value else "UNKNOWN"
            raise DriverError(function, code, name, code == self.OUT_OF_MEMORY)

    def name(self) -> str:
        buffer = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", buffer, ctypes.c_int(len(buffer)), self._device)
        return buffer.value.decode()

    def memory(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value, free.value

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def upload(self, address: int, data: bytes) -> None:
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_char_p(data), ctypes.c_size_t(len(data)))

    def download(self, address: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return buffer.raw

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def close(self) -> None:
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)


class AscendDevice:
    """The first visible Ascend card, through AscendCL."""

    vendor = "ascend"
    OUT_OF_MEMORY = 207001
    NAMES = {  # noqa: RUF012 - a table
        100000: "ACL_ERROR_INVALID_PARAM",
        107001: "ACL_ERROR_RT_INVALID_DEVICEID",
        107002: "ACL_ERROR_RT_CONTEXT_NULL",
        207001: "ACL_ERROR_RT_MEMORY_ALLOCATION",
        507899: "ACL_ERROR_RT_DRV_INTERNAL_ERROR",
    }
    HUGE_PAGES_FIRST = 0
    DDR, HBM = 0, 1
    HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2

    def __init__(self, runtime: ctypes.CDLL) -> None:
        self._runtime = runtime
        self._runtime.aclrtGetSocName.restype = ctypes.c_char_p
        self._call("aclInit", None)
        self._call("aclrtSetDevice", ctypes.c_int32(0))

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._runtime, function)(*arguments)
        if code != 0:
            raise DriverError(function, code, self.NAMES.get(code, "ACL_ERROR"), code == self.OUT_OF_MEMORY)

    def name(self) -> str:
        text: bytes | None = self._runtime.aclrtGetSocName()
        return text.decode() if text else "unknown"

    def memory(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("aclrtGetMemInfo", ctypes.c_int(self.HBM), ctypes.byref(free), ctypes.byref(total))
        if total.value == 0:  # inference cards have DDR only
            self._call("aclrtGetMemInfo", ctypes.c_int(self.DDR), ctypes.byref(free), ctypes.byref(total))
        return total.value, free.value

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_void_p()
        self._call("aclrtMalloc", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_int(self.HUGE_PAGES_FIRST))
        return pointer.value or 0

    def _copy(self, destination: object, source: object, size: int, kind: int) -> None:
        length = ctypes.c_size_t(size)
        self._call("aclrtMemcpy", destination, length, source, length, ctypes.c_int(kind))

    def upload(self, address: int, data: bytes) -> None:
        self._copy(ctypes.c_void_p(address), ctypes.c_char_p(data), len(data), self.HOST_TO_DEVICE)

    def download(self, address: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self._copy(buffer, ctypes.c_void_p(address), size, self.DEVICE_TO_HOST)
        return buffer.raw

    def free(self, address: int) -> None:
        self._call("aclrtFree", ctypes.c_void_p(address))

    def close(self) -> None:
        self._call("aclrtResetDevice", ctypes.c_int32(0))
        self._call("aclFinalize")


def load(soname: str) -> ctypes.CDLL | None:
    """The vendor's library, if this container has it."""
    try:
        return ctypes.CDLL(soname)
    except OSError:
        return None


def open_device() -> Device | None:
    """The card of this container, whatever its vendor; None where no driver is installed."""
    if cuda := load("libcuda.so.1"):
        return CudaDevice(cuda)
    elif ascend := load("libascendcl.so"):  # noqa: RET505 - the vendors stand side by side
        return AscendDevice(ascend)
    return None


def say(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


# ---- the model ------------------------------------------------------------------------------------------------------


def pack(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def unpack(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def make_batch(number: int) -> list[float]:
    """Rows of FEATURES inputs and one target of a fixed linear function, with a little noise: the same everywhere."""
    source = random.Random(SEED + number)
    rows: list[float] = []
    for _ in range(SAMPLES):
        inputs = [source.uniform(-1, 1) for _ in range(FEATURES)]
        target = sum((column + 1) * value for column, value in enumerate(inputs)) + 0.5 + source.gauss(0, 0.01)
        rows += [*inputs, target]
    return rows


def train_step(parameters: list[float], batch: list[float]) -> tuple[list[float], float]:
    """One step of gradient descent on the mean squared error: the new parameters, and the loss before the step."""
    gradient = [0.0] * (FEATURES + 1)
    loss = 0.0
    for start in range(0, len(batch), FEATURES + 1):
        inputs = [*batch[start : start + FEATURES], 1.0]
        error = sum(weight * value for weight, value in zip(parameters, inputs, strict=True)) - batch[start + FEATURES]
        loss += error * error / SAMPLES
        for column, value in enumerate(inputs):
            gradient[column] += 2 * error * value / SAMPLES
    return [weight - LEARNING_RATE * slope for weight, slope in zip(parameters, gradient, strict=True)], loss


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def save_checkpoint(directory: Path, step: int, loss: float, parameters: list[float]) -> Path:
    """Write a checkpoint so that it is complete or absent: a file under its final name is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:06d}.json"
    partial = path.with_name(path.name + ".partial")
    with partial.open("w") as file:
        json.dump({"step": step, "loss": loss, "parameters": parameters}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    return path


def newest_checkpoint(directory: Path) -> Path | None:
    """The complete checkpoint with the highest step."""
    found = [path for path in directory.glob("step-*.json") if CHECKPOINT_NAME.fullmatch(path.name)]
    return max(found, key=lambda path: int(path.stem.removeprefix("step-")), default=None)


def checkpoint_to_resume(directory: Path, resume: str) -> Path | None:
    """The checkpoint to continue from: the one HCS_RESUME_FROM names, or the newest one if asked for, or none."""
    named = os.environ.get("HCS_RESUME_FROM", "")
    if named:
        path = Path(named)
        return newest_checkpoint(path) if path.is_dir() else path
    return newest_checkpoint(directory) if resume == "auto" else None


# ---- the program ----------------------------------------------------------------------------------------------------


def allocate(device: Device, size: int) -> int:
    """Device memory; a refusal tells how much was asked for."""
    try:
        return device.allocate(size)
    except DriverError as error:
        error.requested_bytes = size
        raise


def say_error(error: DriverError) -> None:
    if error.out_of_memory:
        say("oom", call=error.call, code=error.code, name=error.name, requested_bytes=error.requested_bytes)
    else:
        say("error", call=error.call, code=error.code, name=error.name)


def parse_size(text: str) -> int:
    """Bytes, with Ki, Mi, Gi or Ti after the number if wanted."""
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"cannot read {text!r} as a size; write it like 20Gi")
    return int(match[1]) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[match[2]]


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model on whatever card is there.")
    parser.add_argument("--steps", type=int, default=200, help="train up to this step")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="take at least this long for each step")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--resume", choices=["auto", "never"], default="never", help="auto: from the newest checkpoint")
    parser.add_argument("--allocate", type=parse_size, default=0, metavar="SIZE", help="take this much memory first")
    parser.add_argument("--continue-after-oom", action="store_true", help="train even if --allocate was refused")
    return parser.parse_args(arguments)


def train(device: Device, options: argparse.Namespace, directory: Path, sha256: str) -> int:
    total, free = device.memory()
    say("start", vendor=device.vendor, device=device.name(), total_bytes=total, free_bytes=free, sha256=sha256)
    held: list[int] = []
    if options.allocate:
        try:
            held.append(allocate(device, options.allocate))
        except DriverError as error:
            if not (error.out_of_memory and options.continue_after_oom):
                raise
            say_error(error)
        else:
            say("allocated", bytes=options.allocate)

    parameters, step, loss = [0.0] * (FEATURES + 1), 0, float("nan")
    checkpoint = checkpoint_to_resume(directory, options.resume)
    if checkpoint is not None:
        saved = json.loads(checkpoint.read_text())
        parameters, step, loss = saved["parameters"], saved["step"], saved["loss"]
        say("resume", step=step, checkpoint=str(checkpoint))

    on_device = allocate(device, len(pack(parameters)))
    device.upload(on_device, pack(parameters))
    batches = []
    for number in range(BATCHES):
        data = pack(make_batch(number))
        batches.append((allocate(device, len(data)), len(data)))
        device.upload(batches[-1][0], data)

    while step < options.steps:
        began = time.monotonic()
        address, size = batches[step % BATCHES]
        current = unpack(device.download(on_device, len(pack(parameters))))
        parameters, loss = train_step(current, unpack(device.download(address, size)))
        device.upload(on_device, pack(parameters))
        step += 1
        if step % options.checkpoint_every == 0 or step == options.steps:
            path = save_checkpoint(directory, step, loss, parameters)
            say("checkpoint", step=step, loss=loss, path=str(path))
        time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))

    for address in [*held, on_device, *(address for address, _ in batches)]:
        device.free(address)
    device.close()
    say("done", step=step, loss=loss, sha256=sha256)
    return 0


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    directory = Path(os.environ.get("CHECKPOINT_DIR", "checkpoints"))
    sha256 = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    try:
        device = open_device()
        if device is None:
            say("error", name="NoDriver", message="neither libcuda.so.1 nor libascendcl.so can be loaded")
            return EXIT_USAGE
        return train(device, options, directory, sha256)
    except DriverError as error:
        say_error(error)
        return EXIT_OUT_OF_MEMORY if error.out_of_memory else EXIT_DRIVER_ERROR
    except OSError as error:
        say("error", name=type(error).__name__, message=str(error))
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
