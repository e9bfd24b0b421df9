from vcse.nearest import did_you_mean, nearest


def test_the_likest_come_first_however_they_are_written():
    known = ("hopper_hop", "walker_run", "Hopper_Stand", "cheetah_run", "hopper_stand_hard")
    assert nearest("hoper_STAND", known) == ["Hopper_Stand", "hopper_stand_hard", "hopper_hop"]


def test_something_is_near_to_every_name():
    assert nearest("zzz", ("a", "b")) != []
    assert nearest("zzz", ()) == []


def test_a_question_is_asked_only_where_a_name_is_close():
    known = ("vcse", "se", "se-matched")
    assert did_you_mean("VSCE", known) == "; did you mean vcse?"
    assert did_you_mean("entropy", known) == ""
