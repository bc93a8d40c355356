"""The names on the wire do not collide, and all are ours."""

from hcs.model import names


def test_every_resource_and_annotation_is_in_our_domain():
    ours = {*names.REQUESTED, *names.CHARGED, *names.USER_ANNOTATIONS, *names.OUR_ANNOTATIONS}
    assert all(name.startswith(f"{names.DOMAIN}/") and name == name.lower() for name in ours)


def test_what_people_write_and_what_we_write_are_two_sets():
    assert not names.USER_ANNOTATIONS & names.OUR_ANNOTATIONS


def test_vendor_words_are_lower_case_and_known_once():
    assert len(set(names.VENDOR_WORDS)) == len(names.VENDOR_WORDS)
    assert all(word.isalpha() and word.islower() for word in names.VENDOR_WORDS)
