"""A container gets what its vendor's cards need, and no more: one table row per vendor, then the stories behind it."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.inject.node import GIB, UID, allocation, card, container, node, profile

from hcs.inject import shares
from hcs.inject.adjustments import DeviceNode, Mount
from hcs.inject.builtin import builtin_profiles
from hcs.inject.injection import NodeFiles, conceal, inject, read_entry_point
from hcs.inject.quota_file import QuotaCard, parse
from hcs.model import names
from hcs.model.allocations import Peers
from hcs.model.devices import Link, Nic
from hcs.model.refusals import RefusedError

# Two whole cards with the physical numbers 2 and 5 on a node that has every file: vendor, variables, nodes, mounts,
# first library directory.
TABLE: list[tuple[str, dict[str, str], list[str], list[str], str]] = [
    (
        "nvidia",
        {
            "NVIDIA_VISIBLE_DEVICES": "nvidia-uuid-02,nvidia-uuid-05",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        },
        [
            "/dev/nvidia2",
            "/dev/nvidia5",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-uvm-tools",
            "/dev/nvidia-modeset",
        ],
        [],
        "/usr/local/nvidia/lib64",
    ),
    (
        "ascend",
        {"ASCEND_VISIBLE_DEVICES": "2,5", "ASCEND_RT_VISIBLE_DEVICES": "0,1"},
        [
            "/dev/davinci2",
            "/dev/davinci5",
            "/dev/davinci_manager",
            "/dev/devmm_svm",
            "/dev/hisi_hdc",
            "/dev/dvpp_cmdlist",
            "/dev/uburma",
            "/dev/ummu",
        ],
        [
            "/usr/local/Ascend/driver/lib64",
            "/usr/local/Ascend/driver/include",
            "/usr/local/Ascend/driver/version.info",
            "/usr/local/Ascend/driver/topo",
            "/usr/local/dcmi",
            "/usr/local/bin/npu-smi",
            "/usr/local/sbin/npu-smi",
            "/etc/ascend_install.info",
            "/etc/hccl_rootinfo.json",
        ],
        "/usr/local/Ascend/driver/lib64",
    ),
    (
        "cambricon",
        {"CAMBRICON_VISIBLE_DEVICES": "2,5", "MLU_VISIBLE_DEVICES": "0,1"},
        [
            "/dev/cambricon_dev2",
            "/dev/cambricon_dev5",
            "/dev/cambricon_ctl",
            "/dev/cambricon_ipcm2",
            "/dev/cambricon_ipcm5",
            "/dev/cambr-msgq:2",
            "/dev/cambr-msgq:5",
            "/dev/cambr-rpc:2",
            "/dev/cambr-rpc:5",
            "/dev/cmsg_ctrl2",
            "/dev/cmsg_ctrl5",
            "/dev/commu2",
            "/dev/commu5",
            "/dev/cambricon_gdr",
        ],
        ["/usr/bin/cnmon"],
        "/usr/local/neuware/lib64",
    ),
    ("hygon", {"HIP_VISIBLE_DEVICES": "0,1"}, ["/dev/kfd", "/dev/mkfd"], ["/opt/hyhal"], "/opt/hyhal/lib"),
    (
        "mthreads",
        {
            "MTHREADS_VISIBLE_DEVICES": "2,5",
            "MUSA_VISIBLE_DEVICES": "0,1",
            "MTHREADS_DRIVER_CAPABILITIES": "compute,utility",
        },
        [],
        [],
        "/usr/lib/x86_64-linux-gnu/musa",
    ),
    (
        "iluvatar",
        {"IX_VISIBLE_DEVICES": "iluvatar-uuid-02,iluvatar-uuid-05", "CUDA_VISIBLE_DEVICES": "0,1"},
        ["/dev/iluvatar2", "/dev/iluvatar5", "/dev/itrctl"],
        [],
        "/usr/local/corex/lib64",
    ),
    (
        "metax",
        {"MACA_VISIBLE_DEVICES": "0,1"},
        ["/dev/mxcd", "/dev/mxnd", "/dev/mxgd"],
        ["/opt/mxdriver"],
        "/opt/mxdriver/lib",
    ),
    (
        "enflame",
        {"ENFLAME_VISIBLE_DEVICES": "2,5", "TOPS_VISIBLE_DEVICES": "0,1"},
        ["/dev/gcu2", "/dev/gcu5", "/dev/gcuctl"],
        ["/usr/sbin/efsmi"],
        "",
    ),
    (
        "kunlunxin",
        {"XPU_VISIBLE_DEVICES": "0,1"},
        ["/dev/xpu2", "/dev/xpu5", "/dev/xpuctrl"],
        ["/usr/local/xpu", "/usr/local/bin/xpu-smi"],
        "",
    ),
    ("amd", {"AMD_VISIBLE_DEVICES": "2,5", "ROCR_VISIBLE_DEVICES": "0,1"}, ["/dev/kfd"], [], ""),
    ("intel", {"HABANA_VISIBLE_DEVICES": "2,5", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}, [], [], ""),
]


def test_the_table_names_every_vendor() -> None:
    assert {row[0] for row in TABLE} == set(names.VENDOR_WORDS)


@pytest.mark.parametrize(
    ("vendor", "variables", "nodes", "mounts", "library"), [pytest.param(*row, id=row[0]) for row in TABLE]
)
def test_two_whole_cards(
    vendor: str, variables: dict[str, str], nodes: list[str], mounts: list[str], library: str
) -> None:
    cards = card(vendor, 5), card(vendor, 2)
    got = inject(allocation(*cards), profile(vendor), container(), node(*cards, card(vendor, 0)))
    found = got.variables()
    assert (found.pop("LD_LIBRARY_PATH", "") or "").split(":")[0] == library
    assert found == {
        **variables,
        "HCS_NODE": "node-1",
        "HCS_VENDOR": vendor,
        "HCS_DEVICES": f"{vendor}-uuid-02,{vendor}-uuid-05",
    }
    assert [device.path for device in got.devices] == nodes
    assert all(device.source == device.path for device in got.devices)
    assert [mount.destination for mount in got.mounts] == [*mounts, "/dev/shm"]
    assert all(mount.read_only for mount in got.mounts if mount.type == "bind")
    assert got.args is None
    assert got.files == (), "whole cards need no interceptor"


def test_optional_files_are_left_out_where_the_node_lacks_them() -> None:
    gpu = card("nvidia", 0)
    bare = node(gpu, missing=["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"])
    got = inject(allocation(gpu), profile("nvidia"), container(), bare)
    assert [device.path for device in got.devices] == ["/dev/nvidia0", "/dev/nvidiactl"]


def test_a_required_node_that_is_missing_refuses_the_container() -> None:
    npu = card("ascend", 3)
    with pytest.raises(RefusedError, match=r"HostFileMissing: node node-1 has no /dev/davinci_manager; .*driver"):
        inject(allocation(npu), profile("ascend"), container(), node(npu, missing=["/dev/davinci_manager"]))


def test_the_adapter_adds_what_cannot_be_named_by_a_pattern() -> None:
    gpu = card("amd", 1)
    render = DeviceNode("/dev/dri/renderD129", "/dev/dri/renderD129")
    got = inject(allocation(gpu), profile("amd"), container(), node(gpu, files={gpu.id: NodeFiles((render,))}))
    assert render in got.devices


def test_an_emulated_card_brings_all_it_has() -> None:
    gpu = card("nvidia", 1, emulated=True)
    driver = Mount("/emulated", "/usr/local/nvidia/lib64", ("ro",))
    own = NodeFiles((DeviceNode("/dev/nvidia1", "/cards/one"),), (driver,))
    bare = msgspec.structs.replace(node(gpu, files={gpu.id: own}), present=frozenset())
    got = inject(allocation(gpu), profile("nvidia"), container(), bare)
    assert (got.devices, got.mounts) == (own.devices, own.mounts)


def test_directories_come_before_the_images_own_and_once() -> None:
    gpu = card("nvidia", 0)
    before = container(environment={"LD_LIBRARY_PATH": "/opt/app:/usr/local/nvidia/lib64::/opt/app"})
    got = inject(allocation(gpu), profile("nvidia"), before, node(gpu))
    assert got.variables()["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/opt/app"


def test_other_vendors_selections_in_the_image_are_taken_out() -> None:
    """A CUDA base image on Ascend, on a node whose default runtime is NVIDIA's, would else show every GPU."""
    npu = card("ascend", 0)
    image = {"NVIDIA_VISIBLE_DEVICES": "all", "NPU_VISIBLE_DEVICES": "7", "PATH": "/bin"}
    got = inject(allocation(npu), profile("ascend"), container(environment=image), node(npu)).variables()
    assert got["NVIDIA_VISIBLE_DEVICES"] is None
    assert got["NPU_VISIBLE_DEVICES"] is None, "the vendor's own second variable must not overrule ours"
    assert "PATH" not in got
    assert "HIP_VISIBLE_DEVICES" not in got, "what is not there need not be removed"


def test_a_sidecar_without_cards_sees_none() -> None:
    got = conceal(container(environment={"NVIDIA_VISIBLE_DEVICES": "all", "HOME": "/"}), builtin_profiles())
    assert got.variables() == {"NVIDIA_VISIBLE_DEVICES": None}
    assert (got.devices, got.mounts, got.files) == ((), (), ())


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        pytest.param("ai.compute/workload", "gemm", None, id="the-pods-own"),
        pytest.param("ai.compute/entrypoint.nvidia", "a b", None, id="another-vendors"),
        pytest.param("ai.compute/entrypoint.ascend", "python 'my t.py' -x", ("python", "my t.py", "-x"), id="words"),
        pytest.param("ai.compute/entrypoint.ascend", '["sh", "-c", "a; b"]', ("sh", "-c", "a; b"), id="json"),
    ],
)
def test_the_entry_point_of_the_vendor_it_landed_on(
    annotation: str, text: str, expected: tuple[str, ...] | None
) -> None:
    npu = card("ascend", 0)
    got = inject(allocation(npu), profile("ascend"), container(annotations={annotation: text}), node(npu))
    assert got.args == expected


@pytest.mark.parametrize("text", ["", "  ", "[]", '[""]', '["a", 1]', "[a", "'open"])
def test_an_entry_point_that_names_no_program_refuses_the_container(text: str) -> None:
    npu = card("ascend", 0)
    annotations = {"ai.compute/entrypoint.ascend": text}
    with pytest.raises(RefusedError, match=r"MalformedEntrypoint: annotation ai\.compute/entrypoint\.ascend"):
        inject(allocation(npu), profile("ascend"), container(annotations=annotations), node(npu))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_an_entry_point_as_json_reads_back(words: list[str]) -> None:
    assert read_entry_point(msgspec.json.encode(words).decode()) == tuple(words)


def test_where_to_resume_reaches_the_program() -> None:
    gpu = card("nvidia", 0)
    facts = container(annotations={names.RESUME: "file:///ckpt/step-000120.json"})
    got = inject(allocation(gpu), profile("nvidia"), facts, node(gpu)).variables()
    assert got["HCS_RESUME_FROM"] == "file:///ckpt/step-000120.json"
    assert "HCS_RESUME_FROM" not in inject(allocation(gpu), profile("nvidia"), container(), node(gpu)).variables()


def test_several_cards_get_shared_memory_unless_the_pod_brings_its_own() -> None:
    cards = card("nvidia", 0), card("nvidia", 1)
    got = inject(allocation(*cards), profile("nvidia"), container(), node(*cards))
    assert got.mount("/dev/shm") == Mount("tmpfs", "/dev/shm", ("nosuid", "nodev", "noexec", "mode=1777"), "tmpfs")
    own = container(mounted=frozenset({"/dev/shm"}))
    assert inject(allocation(*cards), profile("nvidia"), own, node(*cards)).mount("/dev/shm") is None
    assert inject(allocation(cards[0]), profile("nvidia"), container(), node(*cards)).mount("/dev/shm") is None


def test_collective_flags_are_for_several_cards_alone() -> None:
    flagged = msgspec.structs.replace(profile("nvidia"), collective={"NCCL_SOCKET_IFNAME": "eth1"})
    cards = card("nvidia", 0), card("nvidia", 1)
    assert inject(allocation(*cards), flagged, container(), node(*cards)).variables()["NCCL_SOCKET_IFNAME"] == "eth1"
    assert "NCCL_SOCKET_IFNAME" not in inject(allocation(cards[0]), flagged, container(), node(*cards)).variables()


def test_a_cdi_name_that_resolves_brings_nodes_and_mounts_itself() -> None:
    cards = card("cambricon", 1), card("cambricon", 3)
    known = msgspec.structs.replace(node(*cards), cdi=frozenset(f"cambricon.com/mlu=mlu-{n}" for n in (0, 1, 3)))
    got = inject(allocation(*cards), profile("cambricon"), container(), known)
    assert got.cdi == ("cambricon.com/mlu=mlu-1", "cambricon.com/mlu=mlu-3")
    assert got.devices == ()
    partly = msgspec.structs.replace(known, cdi=frozenset({"cambricon.com/mlu=mlu-1"}))
    fallback = inject(allocation(*cards), profile("cambricon"), container(), partly)
    assert fallback.cdi == (), "all or none"
    assert fallback.devices


class TestShares:
    """A share of a card is held to its memory."""

    def test_the_quota_file_says_what_was_granted(self) -> None:
        gpu = card("nvidia", 1, bus_id="0000:3b:00.0")
        here = node(gpu, files={gpu.id: NodeFiles(context_bytes=300 << 20)})
        got = inject(allocation(gpu, amount=10 * GIB, exclusive=False), profile("nvidia"), container(), here)
        quota = next(file for file in got.files if file.path.endswith("/quota"))
        assert parse(quota.content).cards == (
            QuotaCard(
                vendor="nvidia",
                uuid=gpu.id,
                quota_bytes=10 * GIB,
                context_bytes=300 << 20,
                bus_id="0000:3b:00.0",
                physical_id=None,
            ),
        )

    def test_an_ascend_card_is_named_by_its_physical_id(self) -> None:
        npu = card("ascend", 6)
        got = inject(allocation(npu, exclusive=False), profile("ascend"), container(), node(npu))
        quota = next(file for file in got.files if file.path.endswith("/quota"))
        assert [found.physical_id for found in parse(quota.content).cards] == [6]

    def test_it_is_mounted_where_the_interceptor_looks(self) -> None:
        gpu = card("nvidia", 1)
        got = inject(allocation(gpu, exclusive=False), profile("nvidia"), container(), node(gpu))
        folder = f"/var/lib/hcs/containers/{UID}/main"
        assert {mount.destination: (mount.source, mount.read_only) for mount in got.mounts} == {
            "/etc/ld.so.preload": (f"{folder}/ld.so.preload", True),
            "/usr/local/lib/hcs/libhcs_interceptor.so": ("/var/lib/hcs/interceptor/0/libhcs_interceptor.so", True),
            "/etc/hcs": (folder, True),
            "/etc/hcs/ledger": (f"{folder}/ledger", False),
        }
        files = {file.path.rpartition("/")[2]: file for file in got.files}
        assert files["ld.so.preload"].content == f"{shares.INTERCEPTOR}\n", "the path inside the container"
        assert (files["quota"].mode, files["ld.so.preload"].mode) == (0o444, 0o444)
        assert files["ledger"].keep, "a container that starts again goes on counting"
        assert files["ledger"].mode == 0o666, "whatever user the container runs as"
        assert parse(files["quota"].content).ledger == "ledger", "beside the quota file"

    def test_where_nothing_can_hold_the_share_it_is_refused(self) -> None:
        mlu = card("cambricon", 0)
        with pytest.raises(RefusedError, match=r"ShareNotEnforceable: .* cambricon .*sharing: exclusive"):
            inject(allocation(mlu, exclusive=False), profile("cambricon"), container(), node(mlu))

    def test_without_the_library_it_is_refused(self) -> None:
        gpu = card("nvidia", 0)
        bare = msgspec.structs.replace(node(gpu), interceptor="")
        with pytest.raises(RefusedError, match="InterceptorMissing"):
            inject(allocation(gpu, exclusive=False), profile("nvidia"), container(), bare)

    def test_a_quota_of_nothing_is_refused(self) -> None:
        gpu = card("nvidia", 0)
        with pytest.raises(RefusedError, match="QuotaNotWritable"):
            inject(allocation(gpu, amount=0, exclusive=False), profile("nvidia"), container(), node(gpu))


def test_a_container_the_allocation_does_not_name_is_refused() -> None:
    gpu = card("nvidia", 0)
    with pytest.raises(RefusedError, match=r"NotInAllocation: .*container other"):
        inject(allocation(gpu), profile("nvidia"), container(name="other"), node(gpu))


def test_a_card_the_node_does_not_have_is_refused() -> None:
    with pytest.raises(RefusedError, match="UnknownDevice: node node-1 has no device nvidia-uuid-07"):
        inject(allocation(card("nvidia", 7)), profile("nvidia"), container(), node(card("nvidia", 0)))


VENDORS = st.sampled_from(names.VENDOR_WORDS)
INDEXES = st.sets(st.integers(0, 15), min_size=1, max_size=4)


@given(vendor=VENDORS, wanted=INDEXES, others=INDEXES, exclusive=st.booleans(), data=st.data())
def test_it_always_keeps_its_promises(
    vendor: str, wanted: set[int], others: set[int], exclusive: bool, data: st.DataObject
) -> None:
    """The same whatever the order, no foreign card named, every file mounted, one mount a path."""
    exclusive = exclusive or profile(vendor).quota != "interceptor"
    mine = [card(vendor, index) for index in sorted(wanted)]
    foreign = [card(vendor, index) for index in sorted(others - wanted)]
    plain = inject(allocation(*mine, exclusive=exclusive), profile(vendor), container(), node(*mine, *foreign))
    shuffled = inject(
        allocation(*data.draw(st.permutations(mine)), exclusive=exclusive),
        profile(vendor),
        container(),
        node(*data.draw(st.permutations([*mine, *foreign]))),
    )
    assert msgspec.json.encode(plain) == msgspec.json.encode(shuffled)
    text = msgspec.json.encode(plain).decode()
    patterns = [host.path for host in profile(vendor).devices if "{index}" in host.path]
    given_nodes = {node.path for node in plain.devices}
    for device in foreign:
        assert device.id not in text
        assert not given_nodes & {pattern.format(index=device.index) for pattern in patterns}
    for device in mine:
        assert given_nodes >= {pattern.format(index=device.index) for pattern in patterns}
    sources = {mount.source for mount in plain.mounts}
    assert all(file.path in sources or file.path.rpartition("/")[0] in sources for file in plain.files)
    assert len({mount.destination for mount in plain.mounts}) == len(plain.mounts)
    assert re.search(r"[{}]", "".join(value or "" for value in plain.variables().values())) is None


def test_an_init_container_gets_the_cards_of_its_main_container() -> None:
    one = card("nvidia", 2)
    shared = allocation(one, exclusive=False, reuses={"setup": "main"})
    main = inject(shared, profile("nvidia"), container(), node(one))
    setup = inject(shared, profile("nvidia"), container(name="setup"), node(one))
    assert setup.variables() == main.variables()
    assert {file.path for file in setup.files}.isdisjoint({file.path for file in main.files}), "a ledger of its own"
    assert [parse(file.content).cards for file in setup.files if file.path.endswith("/quota")] == [
        parse(file.content).cards for file in main.files if file.path.endswith("/quota")
    ]
    with pytest.raises(RefusedError, match="no cards for container other"):
        inject(shared, profile("nvidia"), container(name="other"), node(one))


def test_flags_of_collectives_follow_from_the_place_and_yield_to_the_user() -> None:
    cards = [card("nvidia", n, links=(Link(f"nvidia-uuid-{1 - n:02}", "CNS"),)) for n in range(2)]
    facts = msgspec.structs.replace(node(*cards), nics=(Nic("mlx5_0", "ib-a"),))
    gang = allocation(*cards, peers=Peers(members=4, nodes=2, here=1, fabric="ib-a"))
    plain = inject(gang, profile("nvidia"), container(), facts).variables()
    assert plain["NCCL_P2P_DISABLE"] == "1"
    assert plain["NCCL_IB_HCA"] == "=mlx5_0"
    own = inject(gang, profile("nvidia"), container(environment={"NCCL_IB_HCA": "mlx5_7"}), facts).variables()
    assert "NCCL_IB_HCA" not in own
    site = msgspec.structs.replace(profile("nvidia"), collective={"NCCL_P2P_DISABLE": "0"})
    assert inject(gang, site, container(), facts).variables()["NCCL_P2P_DISABLE"] == "0"
    single = inject(allocation(cards[0]), site, container(), facts).variables()
    assert "NCCL_P2P_DISABLE" not in single, "one card alone talks to nobody"
