"""The programs that ``make gpu-check`` runs under a quota, as text: each is what a user might write.

Those that fill a card take large pieces, then ever smaller ones, until each was refused; hold them long enough to be
looked at; and print one line of JSON: what the card said it had (``total``, ``free``) and what they held. ``None`` is
what a framework does not tell.
"""

from typing import Final

import msgspec


class Program(msgspec.Struct, frozen=True):
    """One program: what it needs (``""`` for nothing but the driver), and its text. ``fills`` says whether it goes on
    until it is refused."""

    framework: str
    text: str
    fills: bool = True


_DRIVER: Final = """
import ctypes, json, time
cuda = ctypes.CDLL("libcuda.so.1")
def must(code, what):
    if code != 0: raise SystemExit(f"{what} answered {code}")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
must(cuda.cuInit(0), "cuInit")
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
held = 0
for step in (64 << 20, 2 << 20):
    while True:
        pointer = ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(step))
        if code == 2: break
        must(code, "cuMemAlloc")
        held += step
time.sleep(0.6)
print(json.dumps({"total": total.value, "free": free.value, "held": held}))
"""

_TORCH_FILL: Final = """
import json, os, time
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "@CONFIGURATION@"
import torch
torch.zeros(1, device="cuda")
free, total = torch.cuda.mem_get_info()
held = []
for step in (64 << 20, 12 << 20, 1 << 20):  # the last comes from blocks of 2 MiB
    try:
        while True:
            held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass
time.sleep(0.6)
print(json.dumps({"total": total, "free": free, "held": torch.cuda.memory_reserved()}))
"""

_TORCH_GRAPHS: Final = """
import json, time, torch
free, total = torch.cuda.mem_get_info()
x = torch.ones(1 << 20, device="cuda")
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    y = x * 2
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x * 2 + 1
for _ in range(100):
    graph.replay()
torch.cuda.synchronize()
assert float(y[0]) == 3.0
time.sleep(0.6)
print(json.dumps({"total": total, "free": free, "held": None}))
"""

_CUPY: Final = """
import json, time, cupy
cupy.zeros(1)
free, total = cupy.cuda.runtime.memGetInfo()
pool, held = cupy.cuda.MemoryPool(), []
for step in (64 << 20, 2 << 20):
    try:
        while True:
            held.append(pool.malloc(step))
    except cupy.cuda.memory.OutOfMemoryError:
        pass
time.sleep(0.6)
print(json.dumps({"total": total, "free": free, "held": pool.total_bytes()}))
"""

_JAX: Final = """
import json, os, time
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"  # each array is an allocation of the driver
import jax, jax.numpy as jnp
held = []
for step in (64 << 20, 2 << 20):
    try:
        while True:
            held.append(jnp.zeros(step, dtype=jnp.uint8).block_until_ready())
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "OUT_OF_MEMORY" not in str(error).upper(): raise
time.sleep(0.6)
print(json.dumps({"total": None, "free": None, "held": sum(array.nbytes for array in held)}))
"""

_JAX_PREALLOCATING: Final = """
import json, time
import jax, jax.numpy as jnp
jnp.zeros(1).block_until_ready()
limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
time.sleep(0.6)
print(json.dumps({"total": None, "free": None, "held": None, "limit": limit}))
"""

PROGRAMS: Final = {
    "driver": Program("", _DRIVER),
    "pytorch-caching": Program("torch", _TORCH_FILL.replace("@CONFIGURATION@", "")),
    "pytorch-expandable": Program("torch", _TORCH_FILL.replace("@CONFIGURATION@", "expandable_segments:True")),
    "pytorch-graphs": Program("torch", _TORCH_GRAPHS, fills=False),
    "jax": Program("jax", _JAX),
    "jax-preallocating": Program("jax", _JAX_PREALLOCATING, fills=False),
    "cupy": Program("cupy", _CUPY),
}

TRAINING: Final = """
import json, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(256, 2048, device="cuda")
def step():
    optimiser.zero_grad(); loss = model(x).square().mean(); loss.backward(); optimiser.step()
for _ in range(50):
    step()
torch.cuda.synchronize(); began = time.perf_counter()
for _ in range(400):
    step()
torch.cuda.synchronize()
print(json.dumps({"step_seconds": (time.perf_counter() - began) / 400}))
"""

SIGHT: Final = {
    "torch": "import json, torch; print(json.dumps([torch.__version__, torch.cuda.is_available()]))",
    "jax": "import json, jax; print(json.dumps([jax.__version__, jax.default_backend() == 'gpu']))",
    "cupy": "import json, cupy; print(json.dumps([cupy.__version__, cupy.cuda.runtime.getDeviceCount() > 0]))",
}
"""How each framework is asked for its version, and whether it sees a card."""

NAMES: Final = {"torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}
INSTALL: Final = {"torch": "pip install torch", "jax": "pip install 'jax[cuda12]'", "cupy": "pip install cupy-cuda12x"}
