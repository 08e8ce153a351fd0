"""What the desk of enrolment tells the operator: reports, and answers to orders."""

from broker.enrolment_events import Order, OrderDone
from broker.enrolments import EnrolmentRecord
from broker.events import Reported
from broker.reports import refused_report
from edgefl.protocol.roster_epoch import fingerprint


def order_done(order: Order, text: str) -> OrderDone:
    """An order was carried out."""
    return OrderDone(order_id=order.order_id, is_done=True, code="", text=text)


def order_refused(order: Order, code: str, text: str) -> OrderDone:
    """An order cannot be carried out."""
    return OrderDone(order_id=order.order_id, is_done=False, code=code, text=text)


def admission_report(record: EnrolmentRecord, why: str) -> Reported:
    """A board asked, was let in, or is out."""
    return Reported(
        kind="enrolment-state",
        fields={
            "device": record.device,
            "state": record.admission.name.lower(),
            "fingerprint": fingerprint(record.identity_key),
            "why": why,
        },
    )


def request_refused_report(code: str, device: str) -> Reported:
    """A request of a board that wants in was refused."""
    return refused_report(code, f"enrolment of {device[:64]}")
