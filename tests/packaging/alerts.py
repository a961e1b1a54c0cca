# SPDX-License-Identifier: Apache-2.0
"""promtool on the alerts and the dashboard: they parse, and each alert fires when it should and only then."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from api import expect
from common import RUN, kustomize, run, suite, text_of

SILENT = None
ASKS = "hvd_operator_asks_total"
LEADER = "hvd_operator_leader"


class Case(NamedTuple):
    """Series of one value a minute in promtool's form; when the alert's expression becomes true, and for which pod."""

    alert: str
    series: dict[str, str]
    true_at: int | None = SILENT
    pod: str = ""


CASES = [
    Case("HvdOperatorAbsent", {}, 0),
    Case("HvdOperatorAbsent", {'hvd_operator_synced{pod="a"}': "1x9 0x50"}, 10),
    Case("HvdOperatorAbsent", {'hvd_operator_synced{pod="a"}': "0x60", 'hvd_operator_synced{pod="b"}': "1x60"}),
    Case("HvdOperatorNoLeader", {f'{LEADER}{{pod="a"}}': "0x60", f'{LEADER}{{pod="b"}}': "1x4 0x55"}, 5),
    Case("HvdOperatorNoLeader", {f'{LEADER}{{pod="a"}}': "1x9 0x50", f'{LEADER}{{pod="b"}}': "0x10 1x49"}),
    Case("HvdOperatorCutOff", {'hvd_operator_watch_silence_seconds{pod="a"}': "0+60x60"}, 4, "a"),
    Case("HvdOperatorCutOff", {'hvd_operator_watch_silence_seconds{pod="a"}': "75x60"}),
    Case("HvdOperatorRetries", {'hvd_operator_sync_total{result="retry"}': "0+60x60"}, 6),
    Case("HvdOperatorRetries", {'hvd_operator_sync_total{result="retry"}': "0+20x60",
                                'hvd_operator_sync_total{result="ok"}': "0+600x60"}),
    Case("HvdJobStalled", {'hvd_operator_jobs_stalled{pod="a"}': "0x9 1x50", 'hvd_operator_jobs_stalled{pod="b"}': "0x60"}, 10),
    Case("HvdJobStalled", {'hvd_operator_jobs_stalled{pod="a"}': "0x9 1x3 0x45"}),
    Case("HvdJobStraggling", {'hvd_operator_jobs_straggling{pod="a"}': "0x9 2x50"}, 10),
    Case("HvdJobStraggling", {'hvd_operator_jobs_straggling{pod="a"}': "2x25 0x3 2x25"}),
    Case("HvdAgentsUnreachable", {f'{ASKS}{{result="ok"}}': "0+30x60", f'{ASKS}{{result="refused"}}': "0+20x60",
                                  f'{ASKS}{{result="unreachable"}}': "0+20x60"}, 1),
    Case("HvdAgentsUnreachable", {f'{ASKS}{{result="ok"}}': "0+30x60", f'{ASKS}{{result="unreachable"}}': "0+20x60"}),
    Case("HvdAgentsUnreachable", {f'{ASKS}{{result="ok"}}': "0x60", f'{ASKS}{{result="unreachable"}}': "0x60"}),
]  # fmt: skip


def minutes(duration: str) -> int:
    return int(re.fullmatch(r"(\d+)m", duration)[1])


def promtool_test(case: Case, rule: dict) -> dict:
    """Silent until the expression has been true for the rule's time, then firing; or silent at each minute."""
    labels = rule["labels"] | ({"pod": case.pod} if case.pod else {})
    texts = {k: v.replace("{{ $labels.pod }}", case.pod) for k, v in rule["annotations"].items()}
    fires_at = 61 if case.true_at is SILENT else case.true_at + minutes(rule["for"])
    fires = [{"exp_labels": labels, "exp_annotations": texts}]
    return {
        "interval": "1m",
        "input_series": [{"series": k, "values": v} for k, v in case.series.items()],
        "alert_rule_test": [
            {"eval_time": f"{at}m", "alertname": case.alert, "exp_alerts": fires if at >= fires_at else []}
            for at in range(min(fires_at + 1, 60))
        ],
    }


def write(name: str, content: dict) -> str:
    path = RUN / name
    path.write_text(text_of([content]))
    return str(path)


def monitoring(kind: str) -> dict:
    return next(o for o in kustomize("overlays/monitoring") if o["kind"] == kind)


def check_rules(name: str, groups: list[dict]) -> tuple[str, str]:
    """The file with these rules, and what promtool says to it."""
    path = write(name, {"groups": groups})
    return path, run("promtool", "check", "rules", path)


@suite.test
def each_alert_fires_when_it_should_and_only_then() -> None:
    groups = monitoring("PrometheusRule")["spec"]["groups"]
    rules = {r["alert"]: r for g in groups for r in g["rules"]}
    both = {(name, fires) for name in rules for fires in (True, False)}
    cases = {(c.alert, c.true_at is not SILENT) for c in CASES}
    expect(cases == both, "a case of each kind", cases ^ both)
    path, _ = check_rules("alerts.yml", groups)
    tests = [promtool_test(c, rules[c.alert]) for c in CASES]
    run("promtool", "test", "rules",
        write("alerts-test.yml", {"rule_files": [path], "evaluation_interval": "1m", "tests": tests}))  # fmt: skip


@suite.test
def the_queries_of_the_dashboard_parse() -> None:
    board = monitoring("ConfigMap")["data"]["hvd-operator.json"]
    queries = [t["expr"] for panel in json.loads(board)["panels"] for t in panel["targets"]]
    rules = [
        {"record": f"dashboard:query:{i}", "expr": q.replace("$__rate_interval", "5m")}
        for i, q in enumerate(queries)
    ]
    _, out = check_rules("dashboard.yml", [{"name": "dashboard", "rules": rules}])
    expect(f"{len(queries)} rules found" in out, "each is read", out)
