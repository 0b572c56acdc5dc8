"""The labelled set for hint judges."""

from __future__ import annotations

from dataclasses import replace

from rejoinder.judge.hints.labelled import load_labelled_hints


def test_the_set_has_what_the_reference_says() -> None:
    items = load_labelled_hints()
    assert len({item.id for item in items}) == len(items)
    assert sum(item.directive for item in items) >= 100
    assert sum(not item.directive for item in items) >= 50
    assert all(item.kind.startswith("none_") != item.directive for item in items)


def test_about_a_third_is_held_out_and_no_item_is_in_both_splits() -> None:
    held_out, dev = load_labelled_hints("held_out"), load_labelled_hints("dev")
    assert len(held_out) + len(dev) == len(load_labelled_hints())
    assert 0.25 < len(held_out) / (len(held_out) + len(dev)) < 0.42


def test_a_hint_needs_a_term_of_each_group_and_none_of_the_forbidden() -> None:
    item = replace(
        load_labelled_hints()[0],
        must=(("short*", "brief"), ("polite",)),
        must_not=("1969",),
    )
    assert item.accepts("Be polite and keep it shorter.")
    assert not item.accepts("Keep it shorter.")
    assert not item.accepts("Be polite, with a briefcase.")
    assert not item.accepts("Be polite, brief, and say 1969.")
    assert not replace(item, must=()).accepts("Be polite and brief.")
