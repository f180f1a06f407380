"""Events tell the story of the Ready condition once, and warn where something is wrong."""

from vlm_operator.controller.news import ready_news


def ready(status: str, reason: str, message: str = "") -> list[dict[str, str]]:
    return [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""},
        {"type": "Ready", "status": status, "reason": reason, "message": message},
    ]


def test_a_first_verdict_is_news() -> None:
    assert ready_news([], ready("False", "Loading", "0 of 1 ready")) == ("Loading", "0 of 1 ready", False)


def test_the_same_verdict_in_other_words_is_no_news() -> None:
    assert ready_news(ready("False", "Loading", "0 of 2 ready"), ready("False", "Loading", "1 of 2 ready")) is None


def test_what_is_wrong_is_a_warning() -> None:
    assert ready_news(ready("True", "Serving"), ready("False", "NoFit", "short")) == ("NoFit", "short", True)


def test_a_message_is_never_empty() -> None:
    assert ready_news([], ready("True", "Serving")) == ("Serving", "Serving", False)
