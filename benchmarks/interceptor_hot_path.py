"""What the interceptor adds to one allocate-and-free pair, in nanoseconds, on one thread.

Times the same program, which links the emulated CUDA driver directly, with and without the interceptor, with 10 and
with 10 000 other allocations alive. Prints one JSON line. The emulated driver maps memory for each allocation and asks
for its pid in every call, so only the order of the nanoseconds added carries over to a real card.

    python benchmarks/interceptor_hot_path.py
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hcs import native
from hcs.inject.quota_file import QuotaCard, QuotaFile, render
from hcs.vendors.emulated import create_card

PAIRS = 20_000
REPEATS = 7
UUID = "GPU-00000000-0000-4000-8000-000000000000"

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
int main(int count, char **arguments)
{
    (void)count;
    void *context;
    unsigned long long pointer;
    cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
    for (int alive = atoi(arguments[1]); alive > 0; alive--)
        if (cuMemAlloc_v2(&pointer, 512) != 0)
            return 1;
    int pairs = atoi(arguments[2]);
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int pair = 0; pair < pairs; pair++)
        if (cuMemAlloc_v2(&pointer, 512) != 0 || cuMemFree_v2(pointer) != 0)
            return 1;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%f\n", ((ended.tv_sec - began.tv_sec) * 1e9 + (double)(ended.tv_nsec - began.tv_nsec)) / pairs);
}
"""


def main() -> int:
    """Run the benchmark; 0 on success."""
    driver = native.emulated_driver_dir("nvidia")
    with tempfile.TemporaryDirectory(prefix="hcs-bench-") as name:
        directory = Path(name)
        (directory / "dev").mkdir()
        create_card(directory / "card", vendor="nvidia", model="A100", uuid=UUID, index=0, total_bytes=80 << 30)
        (directory / "dev/nvidia0").symlink_to(directory / "card")
        quota = QuotaFile(cards=(QuotaCard(vendor="nvidia", uuid=UUID, quota_bytes=40 << 30),))
        (directory / "quota").write_text(render(quota))
        (directory / "program.c").write_text(PROGRAM)
        program = directory / "program"
        subprocess.run(
            ["cc", "-O2", str(directory / "program.c"), str(driver / "libcuda.so.1"), "-o", str(program)], check=True
        )
        plain = {
            "PATH": os.environ["PATH"],
            "HCS_ROOT": name,
            "LD_LIBRARY_PATH": str(driver),
            "HCS_QUOTA_FILE": str(directory / "quota"),
        }
        watched = plain | {"LD_PRELOAD": str(native.interceptor_path())}
        result: dict[str, object] = {"benchmark": "interceptor_hot_path", "pairs": PAIRS, "repeats": REPEATS}
        for alive in (10, 10_000):
            timings: dict[str, list[float]] = {"plain": [], "watched": []}
            for _ in range(REPEATS):  # paired, so that a busy machine disturbs both alike
                for kind, environment in (("plain", plain), ("watched", watched)):
                    done = subprocess.run(
                        [program, str(alive), str(PAIRS)], env=environment, capture_output=True, text=True, check=True
                    )
                    timings[kind].append(float(done.stdout))
            differences = [with_us - bare for bare, with_us in zip(*timings.values(), strict=True)]
            result[f"alive_{alive}"] = {
                "driver_ns_per_pair": round(statistics.median(timings["plain"])),
                "added_ns_per_pair": round(statistics.median(differences)),
            }
    result["machine"] = f"{platform.machine()} Linux {platform.release()}, {os.cpu_count()} cores, emulated driver"
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
