"""What the interceptor adds to an allocate-and-free pair and to a kernel launch, in nanoseconds and as a ratio.

Times the same program, which links the emulated CUDA driver directly, with and without the interceptor: on one thread
with 10 and with 10 000 other allocations alive, on 16 threads, in 4 processes at once; and kernel launches. CPU time of
the process, so that a busy machine disturbs little; paired runs, medians. Prints one JSON line. The bar: at most 500 ns
added per allocation on one thread, and no work added to launches (the address a program finds is the driver's own). The
emulated driver asks for its pid in every call and keeps sorted lists, so its own time says nothing about a real one,
and of ours only the nanoseconds carry over.

    make bench-interceptor
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
BAR_NS_PER_ALLOCATION = 500
UUID = "GPU-00000000-0000-4000-8000-000000000000"

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);
static void *context;
static int pairs, launches;
static void *work(void *unused)
{
    (void)unused;
    unsigned long long pointer;
    cuCtxSetCurrent(context);
    for (int pair = 0; pair < pairs; pair++) {
        if (launches)
            cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        else if (cuMemAlloc_v2(&pointer, 512) != 0 || cuMemFree_v2(pointer) != 0)
            exit(1);
    }
    return NULL;
}
int main(int count, char **arguments)
{
    (void)count;
    unsigned long long pointer;
    pthread_t threads[64];
    int wanted = atoi(arguments[3]);
    cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
    for (int alive = atoi(arguments[1]); alive > 0; alive--)
        if (cuMemAlloc_v2(&pointer, 512) != 0)
            return 1;
    pairs = atoi(arguments[2]) / wanted;
    launches = strcmp(arguments[4], "launch") == 0;
    struct timespec began, ended;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
    if (wanted == 1)
        work(NULL);
    for (int index = 0; wanted > 1 && index < wanted; index++)
        pthread_create(&threads[index], NULL, work, NULL);
    for (int index = 0; wanted > 1 && index < wanted; index++)
        pthread_join(threads[index], NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    Dl_info where;
    dladdr((void *)cuLaunchKernel, &where);
    double spent = (ended.tv_sec - began.tv_sec) * 1e9 + (double)(ended.tv_nsec - began.tv_nsec);
    printf("%f %d\n", spent / (pairs * wanted), strstr(where.dli_fname, "libcuda") != NULL);
}
"""

# Name: (allocations alive, threads, processes, what is timed)
CASES = {
    "one_thread_10_alive": (10, 1, 1, "pair"),
    "one_thread_10000_alive": (10_000, 1, 1, "pair"),
    "16_threads": (10, 16, 1, "pair"),
    "4_processes": (10, 1, 4, "pair"),
    "kernel_launch": (0, 1, 1, "launch"),
}


def timed(program: Path, environment: dict[str, str], alive: int, threads: int, processes: int, what: str) -> float:
    """Nanoseconds a pair, the mean over the processes."""
    command = [str(program), str(alive), str(PAIRS), str(threads), what]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    answers = [process.communicate()[0].split() for process in running]
    assert all(process.returncode == 0 for process in running), "the program failed"
    assert all(answer[1] == "1" for answer in answers), "the kernel launch is not the driver's own function"
    return statistics.mean(float(answer[0]) for answer in answers)


def main() -> int:
    """Run the benchmark; 1 where the bar is missed."""
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
            ["cc", "-O2", "-pthread", str(directory / "program.c"), str(driver / "libcuda.so.1"), "-o", str(program)],
            check=True,
        )
        plain = {
            "PATH": os.environ["PATH"],
            "HCS_ROOT": name,
            "LD_LIBRARY_PATH": str(driver),
            "HCS_QUOTA_FILE": str(directory / "quota"),
        }
        watched = plain | {"LD_PRELOAD": str(native.interceptor_path())}
        result: dict[str, object] = {"benchmark": "interceptor_hot_path", "pairs": PAIRS, "repeats": REPEATS}
        added = {}
        for case, (alive, threads, processes, what) in CASES.items():
            runs = []
            for _ in range(REPEATS):
                bare = timed(program, plain, alive, threads, processes, what)
                runs.append((bare, timed(program, watched, alive, threads, processes, what)))
            added[case] = statistics.median(with_us - bare for bare, with_us in runs)
            result[case] = {
                "driver_ns": round(statistics.median(bare for bare, _ in runs)),
                "added_ns": round(added[case]),
                "ratio": round(statistics.median(with_us / bare for bare, with_us in runs), 3),
            }
    result["bar_ns_per_allocation"] = BAR_NS_PER_ALLOCATION
    result["within_bar"] = added["one_thread_10_alive"] <= BAR_NS_PER_ALLOCATION
    result["launches_hooked"] = False
    result["machine"] = f"{platform.machine()} Linux {platform.release()}, {os.cpu_count()} cores, emulated driver"
    print(json.dumps(result))
    return 0 if result["within_bar"] else 1


if __name__ == "__main__":
    sys.exit(main())
