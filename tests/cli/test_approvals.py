"""`contextc approvals`: what waits, the rules, and their end."""

import json
from pathlib import Path

import contextc as cc
from tests.cli.conftest import Run
from tests.executor.approval_shop import DONE, PAYS, Shop


def test_it_lists_what_waits_and_the_rules_and_revokes_one(run: Run, tmp_path: Path) -> None:
    """Guarantee 18.8."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.append("other", cc.user("Hello."))
    assert run("approvals", "--store", address).stdout == "nothing waits for an approval, and there are no rules\n"
    with cc.open_store(address) as store:
        shop = Shop(store)
        shop.run(shop.agent(PAYS))
        first, _ = store.approvals("demo")
        store.answer_approval(first.id, cc.store.Always(seconds=60), who="ann\x1b[31m")
        (rule,) = store.approval_rules()
    listed = run("approvals", "--store", address).stdout
    assert 'waits: pay({"amount":7}) of assistant in demo\n' in listed
    assert f'{rule.id}  allow pay with {{"amount":5}}, in this conversation (demo), until 20' in listed
    assert "\x1b" not in listed
    found = json.loads(run("approvals", "--store", address, "--json").stdout)
    assert ([each["name"] for each in found["pending"]], found["rules"][0]["id"]) == (["pay"], rule.id)
    assert run("approvals", "--store", address, "--revoke", rule.id).stdout.startswith(f"revoked: {rule.id}  allow pay")
    assert rule.id not in run("approvals", "--store", address).stdout
    assert "revoked on 20" in run("approvals", "--store", address, "--all").stdout
    assert run("approvals", "--store", address, "--revoke", "nothing").returncode == 2
    with cc.open_store(address) as store:
        assert Shop(store).resume(DONE).finish == "waiting"


def test_explain_names_the_rule_that_answered_a_call(run: Run, tmp_path: Path) -> None:
    """Guarantee 18.7."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        shop = Shop(store)
        shop.run(shop.agent(PAYS))
        first, _ = store.approvals("demo")
        store.answer_approval(first.id, cc.store.Always(arguments="any"), who="ann")
        assert shop.resume(DONE).finish == "stop"
        (rule,) = store.approval_rules()
    shown = run("explain", "demo", "--store", address).stdout
    assert f"message 2: pay: Allowed by rule {rule.id} ({rule.describe()}), made on" in shown
