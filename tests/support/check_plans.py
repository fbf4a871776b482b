#!/usr/bin/env python3
"""Checks collectives printed by `tutti-info plan --format json`, all ranks of one after the other.

check_plans.py exactly|at_least COUNT < LINES

Knows nothing of schedules: messages match, nobody sends what it does not have, and every rank ends
with each contribution exactly once, or at least once.  COUNT collectives are expected.
"""
import json
import sys
from collections import Counter

KEYS = ["ranks", "rank", "algorithm", "per_round", "rounds", "takes_out"]
MESSAGE_KEYS = ["peer", "slot", "covers"]


class Wrong(Exception):
    pass


def require(condition, *what):
    if not condition:
        raise Wrong(" ".join(str(word) for word in what))


def contributions(intervals, ranks):
    """How often each rank is in the cyclic intervals."""
    times = Counter()
    for first, count in intervals:
        require(0 <= first < ranks and 1 <= count <= ranks, "interval", [first, count])
        times.update((first + i) % ranks for i in range(count))
    return times


def check_form(plan, rank, first):
    parts = plan.get("parts", 1)
    keys = KEYS[:4] + (["parts"] if parts > 1 else []) + KEYS[4:]
    require(list(plan) == keys, "keys", list(plan))
    require(plan["rank"] == rank, "rank", plan["rank"], "where", rank, "is expected")
    for key in ("ranks", "algorithm", "per_round"):
        require(plan[key] == first[key], key, "of rank", rank, "is", plan[key])
    require(len(plan["rounds"]) == len(plan["per_round"]), "rounds of rank", rank)
    for most, one in zip(plan["per_round"], plan["rounds"]):
        require(list(one) == ["puts", "awaits"], "keys", list(one))
        require(len(one["puts"]) <= most and len(one["awaits"]) <= most, "messages of rank", rank)
        for message in one["puts"] + one["awaits"]:
            expected = MESSAGE_KEYS + (["part"] if parts > 1 else [])
            require(list(message) == expected, "keys", list(message))
            require(0 <= message["peer"] < plan["ranks"], "peer", message)
            require(message["peer"] != rank, "rank", rank, "tells itself", message)
            require(0 <= message.get("part", 0) < parts, "part", message)


def content(message):
    return json.dumps({key: message[key] for key in message if key != "peer"})


def check_match(plans):
    """Every put is awaited in the same round, and brings what its receiver says."""
    for number in range(len(plans[0]["rounds"])):
        sent, heard = Counter(), Counter()
        for plan in plans:
            for put in plan["rounds"][number]["puts"]:
                sent[plan["rank"], put["peer"], content(put)] += 1
            for got in plan["rounds"][number]["awaits"]:
                heard[got["peer"], plan["rank"], content(got)] += 1
        require(sent == heard, "round", number, "sent", sent - heard, "awaited", heard - sent)
        require(all(times == 1 for times in sent.values()), "round", number, "a message twice")


def check_knowledge(plan):
    """What is sent was known before the round."""
    known = {part: {plan["rank"]} for part in range(plan.get("parts", 1))}
    heard_from = set()
    for number, one in enumerate(plan["rounds"]):
        heard_from |= {got["peer"] for got in one["awaits"]}
        for put in one["puts"]:
            told = set(contributions(put["covers"], plan["ranks"]))
            # To a message that was taken, without payload.
            is_answer = not told and "part" in put and put["peer"] in heard_from
            require(is_answer or told and told <= known[put.get("part", 0)],
                    "rank", plan["rank"], "round", number, "tells", put)
        for got in one["awaits"]:
            known[got.get("part", 0)] |= set(contributions(got["covers"], plan["ranks"]))


def check_result(plan, exactly):
    ranks, rank = plan["ranks"], plan["rank"]
    taken = sum(count for _, count in plan["takes_out"])
    require(plan["takes_out"] in ([], [[(rank - taken + 1) % ranks, taken]]), plan["takes_out"])
    for part in range(plan.get("parts", 1)):
        heard = [contributions(got["covers"], ranks) for one in plan["rounds"]
                 for got in one["awaits"] if got.get("part", 0) == part and got["covers"]]
        total = Counter([rank])
        for one in heard:
            total.update(one)
        total.subtract(contributions(plan["takes_out"], ranks))
        once = {other: 1 for other in range(ranks)}
        if exactly:  # or the last message is the result
            told = heard and heard[-1] == once
            require(total == once or told, "rank", rank, "ends with", total)
        else:
            require(all(total[other] >= 1 for other in once), "rank", rank, "ends with", total)


def check(plans, exactly):
    require(len(plans) == plans[0]["ranks"], len(plans), "plans of", plans[0]["ranks"], "ranks")
    for rank, plan in enumerate(plans):
        check_form(plan, rank, plans[0])
    check_match(plans)
    for plan in plans:
        check_knowledge(plan)
        check_result(plan, exactly)


def main():
    exactly = {"exactly": True, "at_least": False}[sys.argv[1]]
    collectives = []
    for line in sys.stdin:
        plan = json.loads(line)
        if plan["rank"] == 0:
            collectives.append([])
        collectives[-1].append(plan)
    for plans in collectives:
        try:
            check(plans, exactly)
        except Wrong as wrong:
            print(f"{plans[0]['algorithm']} of {plans[0]['ranks']} ranks: {wrong}")
            return 1
    if len(collectives) != int(sys.argv[2]):
        print(f"{len(collectives)} collectives, expected {sys.argv[2]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
