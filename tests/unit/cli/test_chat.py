"""Which key ``chat`` sends, and where."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rejoinder.cli.api_client import ApiClient, ApiRefused
from rejoinder.cli.chat import key_for
from rejoinder.cli.main import app
from rejoinder.errors import RejoinderError


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", "home:laptop:sk-gateway, home:phone:sk-other")
    monkeypatch.delenv("REJOINDER_API_KEY", raising=False)


@pytest.mark.parametrize(
    "url", [None, "http://127.0.0.1:8080", "http://[::1]:8080", "LOCALHOST:8080"]
)
def test_the_gateway_of_this_machine_gets_its_first_key(url: str | None) -> None:
    assert key_for(url) == "sk-gateway"


@pytest.mark.parametrize(
    "url",
    [
        "http://elsewhere:8080",
        "https://127.0.0.1.example",
        "http://127.0.0.1@elsewhere/",
        "elsewhere:8080",
    ],
)
def test_a_key_of_the_gateway_never_goes_to_another_host(url: str) -> None:
    assert key_for(url) is None


def test_a_key_named_for_the_client_goes_where_the_client_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REJOINDER_API_KEY", "sk-mine")
    assert key_for("http://elsewhere:8080") == "sk-mine"


@pytest.mark.parametrize("url", ["http://[::1", "http://host:port", "ftp://127.0.0.1", ""])
def test_an_address_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(RejoinderError, match="http://host:port"):
        key_for(url)


@pytest.mark.parametrize(("status", "told"), [(401, True), (503, False)])
def test_a_missing_or_wrong_key_names_the_variable_to_set(
    monkeypatch: pytest.MonkeyPatch, status: int, *, told: bool
) -> None:
    def refuse(_: ApiClient) -> None:
        raise ApiRefused("this API key is not known here", status)

    monkeypatch.setattr(ApiClient, "live_version", refuse)
    result = CliRunner().invoke(app, ["chat", "--url", "http://127.0.0.1:9"])
    assert "not known here" in result.stderr
    assert ("set REJOINDER_API_KEY=<your key>" in result.stderr) is told
