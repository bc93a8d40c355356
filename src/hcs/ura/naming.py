"""Names of cards and vendors as people and tools write them, and how they are compared."""

from collections.abc import Callable
from typing import Final

VENDOR_SYNONYMS: Final = {
    "huawei": "ascend",
    "moorethreads": "mthreads",
    "musa": "mthreads",
    "t-head": "thead",
}
"""Other words people use for a vendor, folded, and the word used here."""


def fold(name: str) -> str:
    """A name without regard to case and spaces.

    >>> fold("NVIDIA A100 80GB PCIe")
    'nvidiaa10080gbpcie'
    """
    return "".join(name.split()).casefold()


def vendor_word(text: str) -> str:
    """The vendor word for what people call a vendor.

    >>> vendor_word("Moore Threads"), vendor_word("NVIDIA")
    ('mthreads', 'nvidia')
    """
    folded = fold(text)
    return VENDOR_SYNONYMS.get(folded, folded)


def folds_to(folded: str) -> Callable[[str], bool]:
    """A test for names that fold to this."""
    return lambda name: fold(name) == folded


def begins(name: str, start: str) -> bool:
    """Whether ``name`` is ``start`` and more, without cutting a number or a word in two: A10 begins A10-24 only."""
    rest = name[len(start) :]
    if not name.startswith(start) or not rest:
        return False
    return not rest[0].isalnum() or (start[-1].isalpha() and rest[0].isdigit())


def either(names: tuple[str, ...]) -> str:
    """Names as an alternative in a sentence.

    >>> either(("a", "b", "c"))
    'a, b or c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def shown(name: str) -> str:
    """A name somebody wrote, quoted and never endless."""
    return repr(name if len(name) <= 60 else f"{name[:57]}...")
