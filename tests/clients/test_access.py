"""mqadmin with credentials; those of the official clients are of the suite (`conformance.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivers import java_remoting

from horolog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.process, pytest.mark.clients]


def test_mqadmin_reads_its_keys_from_a_file(guarded: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    tools = tmp_path / "conf" / "tools.yml"
    option = f"-Drocketmq.home.dir={tmp_path}"
    words = ["clusterList", "-n", guarded.namesrv_address]
    for secret, said in (("secret-2", guarded.broker_address), ("secret-3", "check signature")):
        tools.write_text(f"accessKey: operator\nsecretKey: {secret}\n")
        with java_remoting("5.5.0", tmp_path / secret, option) as driver:
            printed = driver.ask("mqadmin", words=words, namesrv=guarded.namesrv_address)
            assert said in printed + driver.stderr(), printed
