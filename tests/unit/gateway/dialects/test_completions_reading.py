"""What the dialect of legacy completions reads in a body, and how it refuses one."""

from __future__ import annotations

import json

import pytest

from rejoinder.gateway.dialects.completions import Completions
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import TurnType


@pytest.fixture
def read(tiny_tokenizer):
    """Read a body made of fields."""
    dialect = Completions(TokenTexts(tiny_tokenizer.tokenizer))

    def reading(**fields: object):
        return dialect.read(json.dumps({"prompt": "Once", **fields}).encode(), 10)

    return reading


def test_a_body_that_asks_for_nothing_special_has_the_apis_defaults(read):
    assert read().request == TurnRequest(
        messages=(), prompts=["Once"], usual_type=TurnType.SIDE, max_tokens=16
    )
    names = ("model", "n", "best_of", "echo", "suffix", "stop", "logprobs", "max_tokens")
    assert read(**dict.fromkeys(names)).request == read().request


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [(1, 2)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        (["a", [3]], ["a", (3,)]),
    ],
)
def test_a_prompt_is_a_text_or_ids_or_a_list_of_either(read, prompt, prompts):
    assert read(prompt=prompt).request.prompts == prompts


@pytest.mark.parametrize(
    "prompt",
    [None, "", [], [[]], [""], ["a", ""], [True], [1, "a"], [[1, "a"]], [[[1]]], [1.5], {}],
)
def test_what_is_no_prompt_is_refused(read, prompt):
    with pytest.raises(ApiError) as caught:
        read(prompt=prompt)
    assert (caught.value.status, caught.value.param) == (400, "prompt")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": " The end."}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"best_of": 3, "n": 2}, "best_of"),
        ({"prompt": ["a"] * 17, "n": 2}, "prompt"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(read, fields, param):
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"best_of": 1}, "choices", 1),
        ({"best_of": 2, "n": 2}, "choices", 2),
        ({"suffix": ""}, "prompts", ["Once"]),
        ({"logprobs": 0}, "top_logprobs", 0),
        ({"logprobs": 5}, "top_logprobs", 5),
        ({"stop": ["\n"]}, "stop", ("\n",)),
        ({"logit_bias": {"7": -100}}, "logit_bias", {7: -100.0}),
        ({"turn_type": "main"}, "turn_type", "main"),
    ],
)
def test_fields_become_the_request(read, fields, name, value):
    assert getattr(read(**fields).request, name) == value


def test_unknown_fields_are_tolerated_and_counted(read):
    assert read(brand_new=1).ignored == ["other"]
