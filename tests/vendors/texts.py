"""Small outputs in the manner of each tool, written by hand with made-up figures.

They keep the tests meaningful where the recorded samples are not at hand, and hold what the samples do not: other
versions' layouts, partitions, processes, foreign lines.
"""

NVIDIA_TABLE = """\
Warning: persistence mode is disabled on device 00000000:3B:00.0. See the Known Issues section
Tue Mar  3 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.10              Driver Version: 570.86.10      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A30                     Off |   00000000:3B:00.0 Off |                    3 |
| N/A   41C    P0             61W /  165W |   2101MiB /  24576MiB  |     17%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX ...         Off |   00000000:5E:00.0  On |                  N/A |
|ERR!   39C    P8           ERR!  /  320W |    513MiB /  16376MiB  |      2%   E. Process |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   2  NVIDIA A100-SXM4-40GB           On |   00000000:86:00.0 Off |                   On |
| N/A   30C    P0             55W /  400W |                  N/A   |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  2    1   0   0  |              38MiB / 19968MiB    | 42      0 |  3   0    2    0    0 |
|                  |                 0MiB / 32767MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A            4711      C   /usr/bin/python3                       2092MiB |
+-----------------------------------------------------------------------------------------+
"""

NVIDIA_OLD_Q = """\

==============NVSMI LOG==============

Driver Version                      : 450.80.02
CUDA Version                        : 11.0

Attached GPUs                       : 2
GPU 00000000:04:00.0
    Product Name                    : Tesla P100-PCIE-16GB
    GPU UUID                        : GPU-0a0b0c0d-1111-2222-3333-444455556666
    Minor Number                    : 0
    PCI
        Bus Id                      : 00000000:04:00.0
        GPU Link Info
            PCIe Generation
                Max                 : 3
                Current             : 1
            Link Width
                Max                 : 16x
                Current             : 8x
        Replays Since Reset         : 4
    Clocks Throttle Reasons
        Idle                        : Not Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Active
            HW Power Brake Slowdown : Not Active
        SW Thermal Slowdown         : Not Active
    FB Memory Usage
        Total                       : 16280 MiB
        Used                        : 777 MiB
        Free                        : 15503 MiB
    BAR1 Memory Usage
        Total                       : 16384 MiB
        Used                        : 2 MiB
    Compute Mode                    : Exclusive_Process
    Utilization
        Gpu                         : 93 %
        Memory                      : 40 %
    Ecc Mode
        Current                     : Enabled
        Pending                     : Enabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory       : 5
                Register File       : 0
                Total               : 5
            Double Bit
                Device Memory       : 2
                Register File       : 0
                Total               : 2
        Aggregate
            Single Bit
                Total               : 19
            Double Bit
                Total               : 11
    Temperature
        GPU Current Temp            : 71 C
        GPU Shutdown Temp           : 85 C
    Power Readings
        Power Draw                  : 180.55 W
        Power Limit                 : 250.00 W
        Enforced Power Limit        : 200.00 W
GPU 00000000:82:00.0
    Product Name                    : Tesla P100-PCIE-16GB
    GPU UUID                        : GPU-0a0b0c0d-1111-2222-3333-444455557777
    FB Memory Usage
        Total                       : GPU is lost
        Used                        : Unknown Error
"""

NVIDIA_XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>560.35.03</driver_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:17:00.0">
    <product_name>NVIDIA L4 &amp; friends</product_name>
    <uuid>GPU-99999999-aaaa-bbbb-cccc-dddddddddddd</uuid>
    <pci><pci_bus_id>00000000:17:00.0</pci_bus_id><replay_counter>6</replay_counter></pci>
    <fb_memory_usage><total>23034 MiB</total><used>400 MiB</used></fb_memory_usage>
    <ecc_errors><volatile>
      <sram_correctable>0</sram_correctable>
      <sram_uncorrectable_parity>1</sram_uncorrectable_parity>
      <sram_uncorrectable_secded>2</sram_uncorrectable_secded>
      <dram_correctable>7</dram_correctable>
      <dram_uncorrectable>4</dram_uncorrectable>
    </volatile><aggregate><dram_uncorrectable>400</dram_uncorrectable></aggregate></ecc_errors>
    <gpu_power_readings><average_power_draw>N/A</average_power_draw>
      <instant_power_draw>31.25 W</instant_power_draw>
      <current_power_limit>72.00 W</current_power_limit></gpu_power_readings>
    <temperature><gpu_temp>44 C</gpu_temp></temperature>
    <processes><process_info><pid>3</pid><used_memory>390 MiB</used_memory></process_info></processes>
  </gpu>
</nvidia_smi_log>
"""

NVIDIA_CSV = """\
index, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], enforced.power.limit [W]
0, NVIDIA A40, 46068, 12, 3, 29.50, 300.00
1, NVIDIA A40, 46068, [N/A], [Not Supported], [Unknown Error], 0.00
"""

ROCM_NAMED = """\
========================= ROCm System Management Interface =========================
=================================== Concise Info ===================================
Device  [Model : Revision]    Temp        Power     Partitions      SCLK    MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
        Name (20 chars)       (Junction)  (Socket)  (Mem, Compute)
====================================================================================
0       [0x74a1 : 0x00]       48.0\u00b0C      137.0W    NPS1, SPX       132Mhz  900Mhz   0%   auto  750.0W    5%    61%
        AMD Made Up MI1
1       [0x74a1 : 0x00]       N/A         N/A       NPS1, SPX       133Mhz  900Mhz   0%   auto  0.0W      0%    0%
        AMD Instinct MI300X-
====================================================================================
"""

ROCM_TOPOLOGY = """\
============================ ROCm System Management Interface ============================
================================ Weight between two GPUs =================================
       GPU0         GPU1
GPU0   0            15
GPU1   15           0
=============================== Link Type between two GPUs ===============================
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
======================================= Numa Nodes =======================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
GPU[1]\t\t: (Topology) Numa Node: 1
GPU[1]\t\t: (Topology) Numa Affinity: 1
"""

ROCM_JSON = """\
WARNING: AMD GPU device(s) is/are in a low-power state.
{"card3": {"Device Name": "N/A", "Card Series": "Made Up 7", "Unique ID": "0xabc123", "PCI Bus": "0000:C7:00.0",
 "Temperature (Sensor edge) (C)": "N/A", "Temperature (Sensor junction) (C)": "61.0",
 "Current Socket Graphics Package Power (W)": "210.5", "VRAM Total Memory (B)": "206141652992",
 "VRAM Total Used Memory (B)": "1048576", "GPU use (%)": "88", "PCIe Replay Count": "3"}}
"""

MX_22 = """\
mx-smi  version: 2.2.9

Attached GPUs                                     : 2
+---------------------------------------------------------------------------------+
| MX-SMI 2.2.9                        Kernel Mode Driver Version: 3.0.11          |
| MACA Version: 3.0.0.8               BIOS Version: 1.27.5.0                      |
|------------------+-----------------+---------------------+----------------------|
| Board       Name | GPU   Persist-M | Bus-id              | GPU-Util      sGPU-M |
| Pwr:Usage/Cap    | Temp       Perf | Memory-Usage        | GPU-State            |
|==================+=================+=====================+======================|
| 0     MetaX C500 | 4           Off | 0000:0e:00.0        | 8%          Disabled |
| 55W / 350W       | 36C          P0 | 1826/65536 MiB      | Available            |
+------------------+-----------------+---------------------+----------------------+
| 1     MetaX C500 | 5           Off | 0000:0f:00.0        | N/A         Disabled |
| NA / NA          | NA           NA | NA/65536 MiB        | Not Available        |
+------------------+-----------------+---------------------+----------------------+
"""

EFSMI_17 = """\
+2026-01-02, 03:04:05 CST-----------------------------------------------------+
| EFSMI: 1.7.9.1           Driver Ver: 1.7.9.1                                |
+-----------------------------+-------------------+---------------------------+
| DEV    NAME                 | Boot FW VER       | BUS-ID      ECC           |
| TEMP   Lpm   Pwr(Usage/Cap) | Mem      GCU Virt | DUsed       SN            |
|=============================================================================|
| 0      Enflame L300         | 40.2.8.3          | 00:2d:00.0  Enable        |
| 35\u2103    LP1      68W / 300W  | 147456MiB Disable | 12%         A000AAAA      |
+-----------------------------+-------------------+---------------------------+
| 1      Enflame S60          | 33.6.5            | 00:3e:00.0  Disable       |
| -      Sleep    -           | 49120MiB Disable  | 0%          xxx           |
+-----------------------------+-------------------+---------------------------+
"""

NPU_310P = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.7                   Version: 23.0.5                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Device              | Bus-Id        | AICore(%)   Memory-Usage(MB)                       |
+===========================+===============+====================================================+
| 32    310P3               | OK            | NA          51                0     / 0            |
| 0     4                   | 0000:81:00.0  | 9           1508 / 44280                           |
+---------------------------+---------------+----------------------------------------------------+
| 32    310P3               | OK            | NA          48                0     / 0            |
| 1     5                   | 0000:81:00.0  | 0           1333 / 43693                           |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 32      0                 | 4242          | python                   | 1400                    |
+===========================+===============+====================================================+
"""

NPU_USAGES_TWO_CHIPS = """\
\tNPU ID                         : 3
\tChip Count                     : 2

\tDDR Capacity(MB)               : 21527
\tDDR Usage Rate(%)              : 6
\tAicore Usage Rate(%)           : 40
\tChip ID                        : 0

\tDDR Capacity(MB)               : 21528
\tDDR Usage Rate(%)              : 7
\tAicore Usage Rate(%)           : 41
\tChip ID                        : 1
"""

NPU_COMMON = """\
NPU ID                         : 2944
Chip Count                     : 2

Chip ID                        : 0
Memory Usage Rate(%)           : 2
Aicore Usage Rate(%)           : 11
Temperature(C)                 : 45

Chip ID                        : 1
Memory Usage Rate(%)           : 3
Aicore Usage Rate(%)           : 12
Temperature(C)                 : 47

Chip Name                      : mcu
Temperature(C)                 : 48
NPU Real-time Power(W)         : 42.8
"""

NPU_POWER_BELOW = """\
        NPU ID                         : 6
        Chip Count                     : 1

        NPU Real-time Power(W)         : 103.5
        Chip ID                        : 0

        NPU Real-time Power(W)         : 13.4
        Chip Name                      : MCU
"""

NPU_LIST = """\
        Total Count                    : 2

        NPU ID                         : 0
        Chip Count                     : 1

        NPU ID                         : 5
        Chip Count                     : 1
"""

NPU_MAP_950 = """\
NPU ID  Slot ID  Chip ID  Chip Phy-ID  Chip Name
0       1        0        3            Ascend950PR
1       2        0        4            Ascend950PR
1       2        1        MCU          Ascend950PR
"""

XPU_STATS = """\
+-----------------------------+--------------------------------------------------------------------+
| Device ID                   | 1                                                                  |
+-----------------------------+--------------------------------------------------------------------+
| GPU Utilization (%)         | 17                                                                 |
| EU Array Active (%)         | N/A                                                                |
+-----------------------------+--------------------------------------------------------------------+
| GPU Power (W)               | Tile 0: 143; Tile 1: 97                                            |
| GPU Frequency (MHz)         | 2050                                                               |
| GPU Core Temperature (C)    | 41                                                                 |
| GPU Memory Temperature (C)  |                                                                    |
| GPU Memory Used (MiB)       | 24                                                                 |
+-----------------------------+--------------------------------------------------------------------+
"""

NPU_MAP = """\
        NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
        8                              0                              0                              Ascend 310P3
        8                              1                              1                              Ascend 310P3
        8                              2                              -                              Mcu
"""

CNMON = """\
+------------------------------------------------------------------------------+
| CNMON v6.2.10                                                Driver v6.2.10  |
+-------------------------------+----------------------+-----------------------+
| Card  VF  Name       Firmware |               Bus-Id | Util        Ecc-Error |
| Fan   Temp      Pwr:Usage/Cap |         Memory-Usage | Mode     Compute-Mode |
|===============================+======================+=======================|
| 7     /   MLU590-M9    v1.2.3 |         0000:e1:00.0 | 63%                 2 |
|  0%   48C        270 W/ 600 W | 70001 MiB/ 98304 MiB | FULL          Default |
+-------------------------------+----------------------+-----------------------+
"""

HY_HCU = """\
============================ System Management Interface =============================
HCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      HCU%      Dec%   Enc%   Mode
0       41.0C    151.0W     auto     550.0W     3%         12%       0%     0%     Normal
1       N/A      N/A        N/A      N/A        0%         0%        0%     0%     Normal
"""

XPU_DISCOVERY = """\
+-----------+--------------------------------------------------------------------------------------+
| Device ID | Device Information                                                                   |
+-----------+--------------------------------------------------------------------------------------+
| 0         | Device Name: Intel(R) Made Up GPU                                                    |
|           | Vendor Name: Intel(R) Corporation                                                    |
|           | SOC UUID: 00000000-0000-0067-0000-000056c08086                                       |
|           | PCI BDF Address: 0000:4d:00.0                                                        |
+-----------+--------------------------------------------------------------------------------------+
"""

MTHREADS_TABLE = """\
Mon Jan  5 11:22:33 2026
---------------------------------------------------------------
    mthreads-gmi:1.14.0          Driver Version:2.7.0
---------------------------------------------------------------
ID   Name           |PCIe                |%GPU  Mem
     Device Type    |Pcie Lane Width     |Temp  MPC Capable
                                         |      ECC Mode
+-------------------------------------------------------------+
3    MTT S3000      |00000000:5b:00.0    |7%    901MiB(32768MiB)
     Physical       |8x(16x)             |44C   YES
                                         |      Enabled
+-------------------------------------------------------------+
"""

KERNEL_LOG = """\
[12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[12345.679000] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
3,1201,98765432,-;NVRM: Xid (PCI:0000:5e:00): 31, pid=77, name=python3, Ch 00000010, intr 00000000. MMU Fault
[12346.000000] pcieport 0000:16:02.0: AER: Corrected error received: 0000:17:00.0
[12346.000100] nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
[12347.000000] usb 1-1: new high-speed USB device number 2 using xhci_hcd
[12348.000000] [ascend] [dms] fault event, dev_id=5, event_id=0x80E01801, assertion=1
"""

GAUDI_NEWER = """\
+-----------------------------------------------------------------------------+
| HL-SMI Version:                              hl-1.23.0-fw-62.1.0.0          |
| Driver Version:                                     1.23.0-0a1b2c3          |
| Nic Driver Version:                                 1.23.1-4d5e6f7          |
|-------------------------------+----------------------+----------------------+
| AIP  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncor-Events|
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |
|===============================+======================+======================|
|   3  HL-325              N/A  | 0000:a1:00.0     N/A |                   4  |
| N/A   31C   P0  141W /  850W  |  1024MiB / 131072MiB |    12%           12% |
|-------------------------------+----------------------+----------------------+
"""

XPU_TILES = """\
Timestamp, DeviceId, TileId, GPU Utilization (%), GPU Memory Used (MiB)
11:22:33.001,    0,    0, 12.50, 301.12
11:22:33.001,    0,    1, 97.25, 255.00
"""

XPU_SUMMARY = """\
+----------------------------------------------+----------------------------+------------------------+
| GPU  Name                     Persistence-M  | Bus-Id            Disp.A   |   Volatile Uncorr. ECC |
| Fan  Temp  Pwr:Usage/Cap                     | Memory-Usage               |   GPU-Util  Compute M. |
+----------------------------------------------+----------------------------+------------------------+
|   2  Intel(R) Arc(TM) Made Up   Off          | 0000:05:00.0      Off      |               Disabled |
| N/A    33C  41W / 190W                       | 512MiB / 16304MiB          |     17%        Default |
+----------------------------------------------+----------------------------+------------------------+
"""

ROCM_KEYED = """\
============================ ROCm System Management Interface ============================
====================================== Product Info ======================================
GPU[0]\t\t: Card Series: \t\tAMD Instinct Made Up
GPU[0]\t\t: Card Model: \t\t0x1234
GPU[1]\t\t: get_power_avg, Not supported on the given system
GPU[0]\t\t: PCI Bus: 0000:C3:00.0
GPU[1]\t\t: PCI Bus: 0000:C4:00.0
GPU[0]\t\t: VRAM Total Memory (B): 68702699520
GPU[0]\t\t: VRAM Total Used Memory (B): 11534336
GPU[0]\t\t: GPU use (%): 7
GPU[0]\t\t: sclk clock level: 1: (800Mhz)
==========================================================================================
================================== End of ROCm SMI Log ===================================
"""

TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV4\tPXB\t0-31\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPXB\tSYS\t X \t\t\t\t

NIC Legend:

  NIC0: mlx5_bond_0
"""

NPU_TOPOLOGY = """\
              Phy-ID0   Phy-ID1   Phy-ID2   CPU Affinity
Phy-ID0       X         SIO       HCCS_SW   0-39
Phy-ID1       SIO       X         HCCS_SW   0-39
Phy-ID2       HCCS_SW   HCCS_SW   X         40-79

Legend:

  X    = Self
  SIO  = Path between the two dies of one package.
"""

EVERYTHING = {
    "ascend-topology": ("npu-smi", NPU_TOPOLOGY),
    "nvidia-table": ("nvidia-smi", NVIDIA_TABLE),
    "nvidia-old-q": ("nvidia-smi", NVIDIA_OLD_Q),
    "nvidia-xml": ("nvidia-smi", NVIDIA_XML),
    "nvidia-csv": ("nvidia-smi", NVIDIA_CSV),
    "nvidia-topology": ("nvidia-smi", TOPOLOGY),
    "rocm-named": ("rocm-smi", ROCM_NAMED),
    "rocm-topology": ("rocm-smi", ROCM_TOPOLOGY),
    "rocm-json": ("rocm-smi", ROCM_JSON),
    "metax": ("mx-smi", MX_22),
    "enflame": ("efsmi", EFSMI_17),
    "ascend-310p": ("npu-smi", NPU_310P),
    "ascend-usages": ("npu-smi", NPU_USAGES_TWO_CHIPS),
    "ascend-common": ("npu-smi", NPU_COMMON),
    "ascend-power": ("npu-smi", NPU_POWER_BELOW),
    "ascend-map-950": ("npu-smi", NPU_MAP_950),
    "ascend-list": ("npu-smi", NPU_LIST),
    "intel-stats": ("xpu-smi-intel", XPU_STATS),
    "ascend-map": ("npu-smi", NPU_MAP),
    "cambricon": ("cnmon", CNMON),
    "hygon": ("hy-smi", HY_HCU),
    "intel-discovery": ("xpu-smi-intel", XPU_DISCOVERY),
    "mthreads": ("mthreads-gmi", MTHREADS_TABLE),
    "kernel-log": ("kernel-log", KERNEL_LOG),
    "gaudi-newer": ("hl-smi", GAUDI_NEWER),
    "intel-tiles": ("xpu-smi-intel", XPU_TILES),
    "intel-summary": ("xpu-smi-intel", XPU_SUMMARY),
    "rocm-keyed": ("rocm-smi", ROCM_KEYED),
}
