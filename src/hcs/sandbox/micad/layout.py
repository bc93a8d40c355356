"""The create message as the daemon's C code sees it: one struct, whatever was received at its beginning, zeros behind.

Declared by C types and not by offsets, so that alignment is the compiler's and not ours.
"""

import ctypes


class CreateMessage(ctypes.Structure):
    """``struct create_msg`` in the host's alignment and byte order."""

    _fields_ = (
        ("name", ctypes.c_char * 66),
        ("path", ctypes.c_char * 256),
        ("ped", ctypes.c_char * 16),
        ("ped_cfg", ctypes.c_char * 256),
        ("debug", ctypes.c_bool),
        ("cpu_str", ctypes.c_char * 128),
        ("vcpu_num", ctypes.c_int),
        ("max_vcpu_num", ctypes.c_int),
        ("cpu_weight", ctypes.c_int),
        ("cpu_capacity", ctypes.c_int),
        ("memory", ctypes.c_int),
        ("max_memory", ctypes.c_int),
        ("iomem", ctypes.c_char * 512),
        ("network", ctypes.c_char * 512),
    )


SIZE = ctypes.sizeof(CreateMessage)


def read(received: bytes) -> dict[str, str | int | bool]:
    """Take what one receive brought; what is missing is zero, texts end at their NUL, the name after 65 characters."""
    message = CreateMessage.from_buffer_copy(received[:SIZE].ljust(SIZE, b"\0"))
    values: dict[str, str | int | bool] = {}
    for name, _ in CreateMessage._fields_:
        value = getattr(message, name)
        values[name] = value.decode(errors="replace") if isinstance(value, bytes) else value
    values["name"] = str(values["name"])[:65]
    return values
