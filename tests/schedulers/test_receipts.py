"""Receipts: damaged, from another version, on a full disk, without locks, very many of them."""

import errno
import fcntl
import json
import os
import time

import pytest

from jobgen.schedulers import follow, receipts
from jobgen.schedulers.errors import Busy, NoSuchJob, Unsubmittable, Unwritable
from jobgen.schedulers.state import Status


def made(name="job", target="local", **changes):
    receipt = receipts.create(name, target, "digest", {"job.sh": "true\n"}, {})
    return receipts.save(receipt._replace(**changes)) if changes else receipt


def test_a_receipt_is_read_back_as_it_was_written():
    receipt = made("näme with spaces/and more", job_id="12", state="sent")
    assert receipts.find(receipt.handle) == receipt
    assert receipts.find("12") == receipt
    assert receipts.find("näme with spaces/and more") == receipt
    assert receipts.of("näme with spaces/and more") == [receipt]
    assert receipt.folder.parent == receipts.jobs()


def test_handles_are_safe_folder_names():
    for name in ("../../etc", ".hidden", "-rf", "a" * 300, "", "日本", "x\ny"):
        handle = made(name).handle
        assert "/" not in handle
        assert handle[0] not in "-."
        assert len(handle) < 100


@pytest.mark.parametrize("handle", ["../x", "..", ".", "", "/etc", "no-such"])
def test_what_is_no_handle_is_no_job(handle):
    made()
    with pytest.raises(NoSuchJob):
        receipts.find(handle)


def test_another_versions_fields_are_ignored_and_lacking_ones_have_defaults():
    receipt = made()
    path = receipt.folder / "receipt.json"
    record = json.loads(path.read_text()) | {"invented_later": 1}
    del record["job_id"], record["details"]
    path.write_text(json.dumps(record))
    assert receipts.find(receipt.handle) == receipt


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"name": 3}', "\xff"])
def test_a_damaged_receipt_stops_a_submission_of_its_name_and_no_other(text):
    receipt, other = made("job"), made("other")
    (receipt.folder / "receipt.json").write_text(text, encoding="latin-1")
    assert receipts.every() == [other]
    assert receipts.of("other") == [other]
    assert [reason.split("/receipt.json")[0].rpartition("/")[2] for reason in receipts.broken()] == [receipt.handle]
    with pytest.raises(Unsubmittable, match=r"cannot be read: it is damaged.*may be live"):
        receipts.of("job")
    with pytest.raises(Unsubmittable, match="damaged"):
        receipts.find(receipt.handle)


def test_a_folder_without_a_receipt_was_never_sent():
    (receipts.jobs() / "job-abcdef").mkdir(parents=True)
    (receipts.jobs() / "stray").write_text("")
    assert receipts.of("job") == receipts.every() == receipts.broken() == []


def test_a_full_disk_is_said_so_and_leaves_nothing(monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritable, match=r"No space left on device.*JOBGEN_STATE"):
        made()
    assert list(receipts.jobs().iterdir()) == []


def test_an_old_receipt_stays_whole_when_the_new_one_cannot_be_written(monkeypatch):
    receipt = made()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.EDQUOT, "Disk quota exceeded")))
    with pytest.raises(Unwritable, match="quota"):
        receipts.save(receipt._replace(state="sent"))
    assert receipts.find(receipt.handle) == receipt
    assert sorted(path.name for path in receipt.folder.iterdir()) == ["job.sh", "receipt.json"]


def test_a_file_system_without_locks_is_said_so(monkeypatch):
    def none(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(Unsubmittable, match="file system without locks"), receipts.locked("x"):
        pass


def test_a_taken_lock_is_waited_for_after_saying_so_or_refused(monkeypatch):
    monkeypatch.setattr(receipts, "NOTICE_SECONDS", 0.05)
    said = []
    with receipts.locked("x"):
        with pytest.raises(Busy), receipts.locked("x"):
            pass
        with receipts.locked("y"):
            pass
    with receipts.locked("x", said.append):
        assert said == []


def test_how_a_run_ended_is_remembered_and_not_asked_for():
    receipt = made(target="nowhere", state="sent", job_id="7")
    end = Status("failed", "FAILED", "why", 2, "node1", "0:10", "3", final=True)
    receipts.close(receipt, end)
    assert follow.status(receipt.handle)[1] == end
    assert [status for _, status in follow.listing()] == [end]
    (receipt.folder / "end.json").write_text("{cut off")
    assert receipts.find(receipt.handle) == receipt


def test_two_thousand_old_receipts_slow_nothing_down():
    """Their names are looked at, not their content; with one name, each is read once and none is asked for."""
    for number in range(2000):
        folder = receipts.jobs() / f"{'same' if number % 2 else f'other{number}'}-{number:06x}"
        folder.mkdir(parents=True)
        record = receipts.Receipt(folder.name, "same" if number % 2 else f"other{number}", "slurm", "d", "t", "sent", float(number), str(number))
        (folder / "receipt.json").write_text(json.dumps(record._asdict()))
        receipts.close(record, Status("succeeded", "COMPLETED", final=True))
    begun = time.process_time()
    assert receipts.of("new") == []
    nothing = time.process_time() - begun
    assert len(receipts.of("same")) == 1000
    reading = time.process_time() - begun - nothing
    assert len(follow.listing()) == 2000
    print(f"2,000 receipts: another name {1000 * nothing:.0f} ms, 1,000 of the same name {1000 * reading:.0f} ms of CPU")
    assert nothing < 0.2
    assert reading < 1.0
