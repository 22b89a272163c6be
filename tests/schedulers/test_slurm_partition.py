"""Pitfall 13: limits of a partition that sbatch lets pass; and pitfall 62: what preemption does there."""

import pytest

from jobgen.schedulers import receipts
from jobgen.schedulers.errors import NeverStarts
from jobgen.schedulers.slurm_partition import Wish, duration, seconds, troubles, wished
from jobgen.schedulers.slurm_scheduler import SlurmScheduler
from jobgen.schedulers.submit import Request, send
from jobgen.targets.artifact import Artifact

SMALL = {
    "PartitionName": "small", "AllowAccounts": "ALL", "AllowQos": "ALL", "Default": "YES", "QoS": "N/A", "MaxNodes": "2", "MaxTime": "00:30:00",
    "MinNodes": "0", "MaxMemPerNode": "8000", "TotalNodes": "4", "State": "UP", "PriorityTier": "1", "PreemptMode": "OFF", "RootOnly": "NO",
}  # fmt: skip
LARGE = SMALL | {"PartitionName": "large", "Default": "NO", "MaxNodes": "UNLIMITED", "MaxTime": "7-00:00:00", "MaxMemPerNode": "UNLIMITED", "PriorityTier": "9"}
SETTINGS = {"ClusterName": "here", "EnforcePartLimits": "NO", "PreemptType": "preempt/partition_prio", "AccountingStorageType": "accounting_storage/slurmdbd"}


def configure(site, *partitions, **settings):
    rows = "\n".join(" ".join(f"{key}={value}" for key, value in one.items()) for one in partitions)
    shown = "\n".join(f"{key} = {value}" for key, value in (SETTINGS | settings).items())
    site.has("scontrol", f"case $2 in config) cat <<'END'\n{shown}\nEND\n;; partition) cat <<'END'\n{rows}\nEND\n;; esac")
    site.has("sacctmgr", "echo 'normal|'; echo 'high|DenyOnLimit'")
    site.has("sinfo", "echo 64000+")
    site.has("sbatch", 'case $* in *--test-only*) echo "sbatch: Job 41 to start at 2027-01-01T00:00:00" >&2;; *) echo 41;; esac')


def script(*options):
    return "#!/bin/bash\n" + "".join(f"#SBATCH {one}\n" for one in ("--job-name=x", "--nodes=1", *options)) + "true\n"


def submit(text, said=None):
    return send(Request("x", "slurm", Artifact(text), "", (), {}), SlurmScheduler(), new=False, say=(said if said is not None else []).append)


def try_out(text, said=None):
    return SlurmScheduler().try_out(Request("x", "slurm", Artifact(text), "", (), {}), (said if said is not None else []).append)


@pytest.mark.parametrize(
    ("options", "words", "fix"),
    [
        (["--time=0-02:00:00"], "launch.time_limit is 2h, its MaxTime is 30m", "launch.time_limit: 30m"),
        (["--nodes=3"], "resources.nodes is 3, its MaxNodes is 2", "resources.nodes: 2"),
        (["--mem=20000M"], "resources.memory_per_node asks for 20000 MiB, its MaxMemPerNode is 8000 MiB", "resources.memory_per_node: 8000MiB"),
        (["--mem=0"], r"a whole node is asked for \(--mem=0: 64000 MiB\), its MaxMemPerNode is 8000 MiB", "resources.exclusive: false"),
    ],
)
@pytest.mark.parametrize("call", [submit, try_out])
def test_a_job_that_would_wait_for_ever_is_refused_with_the_numbers_and_the_smallest_change(site, call, options, words, fix):
    configure(site, SMALL, LARGE)
    with pytest.raises(NeverStarts, match=words) as error:
        call(script(*options))
    assert error.value.exit_status == 1
    assert fix in str(error.value)
    assert "or slurm.partition: large" in str(error.value)
    assert site.called("sbatch") == []
    assert receipts.every() == []


def test_all_limits_are_named_at_once_and_no_partition_is_offered_that_has_them_too(site):
    configure(site, SMALL, LARGE | {"State": "DOWN"})
    with pytest.raises(NeverStarts) as error:
        submit(script("--time=1-12:00:00", "--nodes=5"))
    assert str(error.value) == (
        "partition small: launch.time_limit is 1d 12h, its MaxTime is 30m\npartition small: resources.nodes is 5, its MaxNodes is 2\n"
        "fix: write launch.time_limit: 30m, resources.nodes: 2\n"
        "sbatch would take the job, and it would wait for ever (EnforcePartLimits=NO)"
    )


def test_one_of_several_partitions_is_enough(site):
    configure(site, SMALL, LARGE)
    assert submit(script("--partition=small,large", "--time=0-02:00:00")).job_id == "41"
    configure(site, SMALL, LARGE | {"MaxTime": "01:00:00"})
    with pytest.raises(NeverStarts, match="(?s)partition small: .*partition large: "):
        submit(script("--partition=small,large", "--time=0-02:00:00"))


@pytest.mark.parametrize("enforced", ["ALL", "ANY"])
def test_where_slurm_enforces_the_limits_its_own_words_are_heard(site, enforced):
    configure(site, SMALL, EnforcePartLimits=enforced)
    assert "to start at" in try_out(script("--time=0-02:00:00"))


def test_a_qos_that_may_go_beyond_is_not_refused(site):
    long = "echo 'normal|'; echo 'long|DenyOnLimit,PartitionTimeLimit'"
    configure(site, SMALL)
    site.has("sacctmgr", long)
    said = []
    submit(script("--time=0-02:00:00", "--qos=long"), said)
    assert "warning: partition small: launch.time_limit is 2h" in said[0]
    assert "a QOS of this cluster may go beyond" in said[0]
    with pytest.raises(NeverStarts):
        try_out(script("--time=0-02:00:00", "--qos=normal"))
    with pytest.raises(NeverStarts):
        try_out(script("--nodes=3", "--qos=long"))
    said.clear()
    assert "to start at" in try_out(script("--time=0-02:00:00"), said)  # the user's default QOS is not known
    assert len(said) == 1
    configure(site, SMALL | {"QoS": "long"})
    site.has("sacctmgr", long)
    assert "to start at" in try_out(script("--time=0-02:00:00", "--qos=normal"))


@pytest.mark.parametrize(
    "lines",
    ["exit 1", "echo 'slurm_load_partitions error: Unable to contact slurm controller' >&2; exit 1",
     'case $2 in config) echo "ClusterName = here";; *) echo nonsense;; esac', 'case $2 in config) echo "ClusterName = here";; *) exit 1;; esac'],
)  # fmt: skip
def test_a_question_that_fails_refuses_nothing(site, lines):
    configure(site, SMALL)
    site.has("scontrol", lines)
    assert "to start at" in try_out(script("--time=0-02:00:00"))


def test_without_sacctmgr_and_sinfo_there_is_doubt_and_no_refusal(site):
    configure(site, SMALL)
    site.has("sacctmgr", "exit 1")
    site.lacks("sinfo")
    said = []
    assert submit(script("--time=0-02:00:00", "--mem=0"), said).job_id == "41"
    assert said[0].startswith("warning: partition small")


def test_without_accounting_there_is_no_qos_that_lifts_a_limit(site):
    configure(site, SMALL, AccountingStorageType="accounting_storage/none")
    site.lacks("sacctmgr")
    with pytest.raises(NeverStarts):
        try_out(script("--time=0-02:00:00"))


def test_a_partition_that_is_down_is_said(site):
    configure(site, SMALL | {"State": "DOWN"}, LARGE)
    said = []
    try_out(script(), said)
    assert said == ["warning: partition small is DOWN: sbatch takes the job, and it waits until an administrator sets it UP"]
    said.clear()
    try_out(script("--partition=small,large"), said)
    assert said == []


@pytest.mark.parametrize(
    ("partition", "options", "warned"),
    [
        ({"PreemptMode": "CANCEL"}, ["--requeue"], True), ({"PreemptMode": "CANCEL"}, ["--no-requeue"], False), ({"PreemptMode": "REQUEUE"}, ["--requeue"], False),
        ({"PreemptMode": "CANCEL", "PriorityTier": "9"}, ["--requeue"], False),
    ],
)  # fmt: skip
def test_restarts_where_preemption_cancels_are_a_warning_with_the_follow_up(site, partition, options, warned):
    """Pitfall 62."""
    configure(site, SMALL | partition, LARGE)
    said = []
    assert submit(script(*options), said).job_id == "41"
    assert len(said) == warned
    assert not warned or "after=[{job: HANDLE, on: failure}]" in said[0]


@pytest.mark.parametrize(
    ("limits", "wish", "count"),
    [
        ({"AllowAccounts": "prod,ml"}, {"account": "x"}, 1), ({"AllowAccounts": "prod,ml"}, {"account": "ml"}, 0), ({"AllowAccounts": "prod"}, {}, 0),
        ({"DenyAccounts": "x"}, {"account": "x"}, 1), ({"AllowQos": "high"}, {"qos": "normal"}, 1), ({"DenyQos": "normal"}, {"qos": "normal"}, 1),
        ({"MinNodes": "4", "MaxNodes": "UNLIMITED"}, {"nodes": 2}, 1), ({"MaxNodes": "UNLIMITED"}, {"nodes": 5}, 1), ({}, {"nodes": 2, "seconds": 1800}, 0),
    ],
)  # fmt: skip
def test_each_limit(limits, wish, count):
    asked = Wish((), 1, None, None, None, None, False)._replace(**wish)
    assert len(list(troubles(SMALL | limits, asked, lambda _: None))) == count


def test_directives_are_read_until_the_first_command():
    text = script("--partition=a,b", "--time=1-02:00:00", "--mem=4096M", "--requeue", "--account='a b'") + "#SBATCH --qos=late\n"
    assert wished(text) == Wish(("a", "b"), 1, 93600, 4096, "a b", None, True)


@pytest.mark.parametrize(("written", "amount"), [("7-00:00:00", 604800), ("00:30:00", 1800), ("30:00", 1800), ("UNLIMITED", None), ("NONE", None), ("", None)])
def test_slurms_times(written, amount):
    assert seconds(written) == amount


@pytest.mark.parametrize(("amount", "text"), [(1800, "30m"), (604800, "7d"), (129600, "1d 12h"), (0, "0s"), (61, "1m 1s")])
def test_times_as_specs_write_them(amount, text):
    assert duration(amount) == text
