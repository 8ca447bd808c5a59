"""One Spark for all tests, and a broker on the simulated clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster import Cluster

from horolog.spark.session import make_session
from horolog.testing.broker import BrokerProcess

START = Path(__file__).parents[1] / "support" / "spark_start"


@pytest.fixture(scope="session")
def spark():
    """A session on two cores in which a failed task is tried again."""
    with pytest.MonkeyPatch.context() as patch:
        # For the JVM, and so for its workers
        patch.setenv("PYTHONPATH", str(START), prepend=os.pathsep)
        session = make_session(
            "horolog tests",
            master="local[2,3]",
            conf={
                "spark.sql.shuffle.partitions": "2",
                "spark.default.parallelism": "2",
                "spark.driver.memory": "1g",
                # Compiling to the end pays for itself after hours, not after a hundred small jobs.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.sql.streaming.stopTimeout": "60s",
            },
        )
    yield session
    session.stop()


@pytest.fixture
def broker():
    """A broker in a process of its own, whose clock moves only when a test says so."""
    with BrokerProcess() as started:
        yield started


@pytest.fixture(scope="module")
def cluster():
    """A master and two workers, for all tests of a module."""
    with Cluster() as started:
        yield started


@pytest.fixture(scope="module")
def shared_broker():
    """One for all tests of a module, with an empty topic `t`; nothing is ever scheduled in it."""
    with BrokerProcess() as started:
        started.create_topic("t")
        yield started
