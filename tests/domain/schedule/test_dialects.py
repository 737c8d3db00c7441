"""Each dialect's own table: what it takes, when that runs, and what it refuses with which words.

The texts and their meaning are those of each dialect's documentation. All instants are UTC, after
2026-01-01T00:00Z, which is a Thursday.
"""

from datetime import UTC, datetime

import pytest

from domain.schedule import cron
from domain.schedule.schedule import Cron, Refused, parse_cron, plan, warnings

NEW_YEAR = 1_767_225_600_000

QUARTZ = {
    "0 0 12 * * ?": ("0 0 12 * * ?", "01-01T12:00:00 01-02T12:00:00"),
    "0 15 10 ? * *": ("0 15 10 ? * *", "01-01T10:15:00 01-02T10:15:00"),
    "0 15 10 * * ? *": ("0 15 10 * * ?", "01-01T10:15:00 01-02T10:15:00"),
    "0 0/5 14,18 * * ?": ("0 0-59/5 14,18 * * ?", "01-01T14:00:00 01-01T14:05:00"),
    "0 /15 3 * * ?": ("0 */15 3 * * ?", "01-01T03:00:00 01-01T03:15:00"),
    "0 59/15 3 * * ?": ("0 59 3 * * ?", "01-01T03:59:00 01-02T03:59:00"),
    "0 10,44 14 ? 3 WED": ("0 10,44 14 ? 3 4", "03-04T14:10:00 03-04T14:44:00 03-11T14:10:00"),
    "0 15 10 ? * MON-FRI": ("0 15 10 ? * 2-6", "01-01T10:15:00 01-02T10:15:00 01-05T10:15:00"),
    "0 15 10 L * ?": ("0 15 10 L * ?", "01-31T10:15:00 02-28T10:15:00 03-31T10:15:00"),
    "0 15 10 L-2 * ?": ("0 15 10 L-2 * ?", "01-29T10:15:00 02-26T10:15:00 03-29T10:15:00"),
    "0 15 10 ? * 6L": ("0 15 10 ? * 6L", "01-30T10:15:00 02-27T10:15:00 03-27T10:15:00"),
    "0 15 10 ? * friL": ("0 15 10 ? * 6L", "01-30T10:15:00 02-27T10:15:00 03-27T10:15:00"),
    "0 15 10 ? * 6#3": ("0 15 10 ? * 6#3", "01-16T10:15:00 02-20T10:15:00 03-20T10:15:00"),
    "0 0 0 ? * MON#5": ("0 0 0 ? * 2#5", "03-30T00:00:00 06-29T00:00:00"),
    "0 0 12 1/5 * ?": ("0 0 12 1-31/5 * ?", "01-01T12:00:00 01-06T12:00:00"),
    "0 11 11 11 11 ?": ("0 11 11 11 11 ?", "11-11T11:11:00"),
    "0 0 9 15W * ?": ("0 0 9 15W * ?", "01-15T09:00:00 02-16T09:00:00 03-16T09:00:00"),
    "0 0 9 1W 8,9 ?": ("0 0 9 1W 8-9 ?", "08-03T09:00:00 09-01T09:00:00"),
    "0 0 9 31w * ?": ("0 0 9 31W * ?", "01-30T09:00:00 03-31T09:00:00 05-29T09:00:00"),
    "0 0 9 LW * ?": ("0 0 9 LW * ?", "01-30T09:00:00 02-27T09:00:00 03-31T09:00:00"),
    "0 0 0 L-3W * ?": ("0 0 0 L-3W * ?", "01-28T00:00:00 02-25T00:00:00 03-27T00:00:00"),
    "0 0 12 ? * L": ("0 0 12 ? * 7", "01-03T12:00:00 01-10T12:00:00"),
    "0 0 12 ? * 1": ("0 0 12 ? * 1", "01-04T12:00:00 01-11T12:00:00"),
    "0 0 22-2 * * ?": ("0 0 0-2,22-23 * * ?", "01-01T01:00:00 01-01T02:00:00 01-01T22:00:00"),
    "0 0 0 ? NOV-FEB FRI-MON": (
        "0 0 0 ? 1-2,11-12 1-2,6-7",
        "01-02T00:00:00 01-03T00:00:00 01-04T00:00:00 01-05T00:00:00 01-09T00:00:00",
    ),
    "30 0 9 ? * WED *": ("30 0 9 ? * 4", "01-07T09:00:30 01-14T09:00:30"),
    "0 15 10 * * ? 2026,2028": ("0 15 10 * * ? 2026,2028", "01-01T10:15:00 01-02T10:15:00"),
    "0 15 10 ? * 6L 2026-2027": ("0 15 10 ? * 6L 2026-2027", "01-30T10:15:00 02-27T10:15:00"),
}
QUARTZ_REFUSED = {
    "0 0 9 LW-2 * ?": "'LW-2' in day-of-month is not understood: write LW",
    "0 0 12 * * *": "write 0 0 12 ? * *",
    "0 0 12 ? * ?": "write 0 0 12 * * ?",
    "0 0 12 15 * MON": "one of them has to be ?",
    "0 0 12 1,L * ?": "alone only",
    "0 0 12 15W,20 * ?": "alone only",
    "0 0 12 ? * MON,L": "alone only",
    "0 0 12 ? * 2#1,3#1": "alone only",
    "0 0 12 ? * 6#6": "first (#1) to fifth (#5)",
    "0 0 12 ? * 0": "Sunday is 1, Saturday 7",
    "0 0 12 ? * 8": "day-of-week is 1-7, not 8",
    "0 0 12 ? * L-3": "write L or L-3 in day-of-month and FRIL in day-of-week",
    "0 0/90 * * * ?": '{"every": "PT90M"}',
    "0/90 * * * * ?": '{"every": "PT90S"}',
    "@daily": "not part of the quartz dialect",
    "@every 5m": '{"every": "PT5M"}',
    "0 9 * * 1": 'leave out "dialect"',
    "0 0 12 * * ? 2030 1": "8 given",
    "0 0 12 W * ?": "such as 15W",
    "0 0 12 LL * ?": "not understood",
    "0 0 12 L-31 * ?": "L-1 to L-30",
    "0 0 12 L-0 * ?": "L-1 to L-30",
    "0 0 12 32W * ?": "day-of-month is 1-31",
    "0 0 0 30 2 ?": "never matches: day 30 does not exist in month 2",
    "0 0 0 29 2 ? 2026,2027": "never matches",
    "0 0 0 ? * MON 2100": "year is 1970-2099",
    "0 0 12 * * ? 2030-2028": "write 2028-2030",
    "*/5 * * * * ?": "fires 5 s apart; at least 60 s are allowed",
    "0/59 * * * * ?": "fires 1 s apart; at least 60 s are allowed",
}

AWS = {
    "0 10 * * ? *": ("0 10 * * ? *", "01-01T10:00:00 01-02T10:00:00"),
    "cron(15 12 * * ? *)": ("15 12 * * ? *", "01-01T12:15:00 01-02T12:15:00"),
    "0 18 ? * MON-FRI *": ("0 18 ? * 2-6 *", "01-01T18:00:00 01-02T18:00:00 01-05T18:00:00"),
    "0 8 1 * ? *": ("0 8 1 * ? *", "01-01T08:00:00 02-01T08:00:00"),
    "0/15 * * * ? *": ("0-59/15 * * * ? *", "01-01T00:15:00 01-01T00:30:00"),
    "0/5 8-17 ? * MON-FRI *": ("0-59/5 8-17 ? * 2-6 *", "01-01T08:00:00 01-01T08:05:00"),
    "1/10 0 * * ? *": ("1-59/10 0 * * ? *", "01-01T00:01:00 01-01T00:11:00"),
    "15 10 ? * 6L 2026-2027": ("15 10 ? * 6L 2026-2027", "01-30T10:15:00 02-27T10:15:00"),
    "0 9 3W * ? *": ("0 9 3W * ? *", "01-02T09:00:00 02-03T09:00:00"),
    "0 9 L * ? *": ("0 9 L * ? *", "01-31T09:00:00 02-28T09:00:00"),
    "0 9 ? * L *": ("0 9 ? * 7 *", "01-03T09:00:00 01-10T09:00:00"),
    "0 9 ? * 3#2 *": ("0 9 ? * 3#2 *", "01-13T09:00:00 02-10T09:00:00"),
    "0 0 1 JAN,FEB,MAR ? *": ("0 0 1 1-3 ? *", "02-01T00:00:00 03-01T00:00:00"),
    "0 0 1 1 ? 2026/2": ("0 0 1 1 ? 2026-2199/2", ""),
}
AWS_REFUSED = {
    "0 10 31 4 ? *": "does not exist in month 4; the last day of a month is L",
    "0 10 * * * *": "write 0 10 ? * * *",
    "0 10 1 * MON *": "one of them has to be ?",
    "0 10 ? * ? *": "write 0 10 * * ? *",
    "* * * * *": "expected 6 fields",
    "0 10 * * ?": "5 given",
    "0 0 10 * * ? *": "7 given",
    "0 9 ? * MON/2 *": "no steps of weekdays",
    "0 9 ? * 3#1,6#3 *": "alone only",
    "0 9 LW * ? *": "day-of-month takes L, 15W",
    "0 9 L-2 * ? *": "not part of the aws dialect",
    "0 9 ? * 0 *": "Sunday is 1, Saturday 7",
    "0 9 28-3 * ? *": "write 28-31,1-3",
    "0 10 * * ? 2200": "year is 1970-2199",
    "/5 * * * ? *": "not understood",
    "rate(5 minutes)": '{"every": "PT5M"}',
    "rate(1 day)": '{"every": "P1D"}',
    "at(2026-12-01T00:00:00)": "run_at",
    "@daily": "not part of the aws dialect",
}

SPRING = {
    "0 0 * * * *": ("0 0 * * * *", "01-01T01:00:00 01-01T02:00:00"),
    "0 0 8-10 * * *": ("0 0 8-10 * * *", "01-01T08:00:00 01-01T09:00:00 01-01T10:00:00"),
    "0 0/30 8-10 * * *": ("0 0-59/30 8-10 * * *", "01-01T08:00:00 01-01T08:30:00"),
    "0 0 9-17 * * MON-FRI": ("0 0 9-17 * * 1-5", "01-01T09:00:00 01-01T10:00:00"),
    "0 0 0 25 DEC ?": ("0 0 0 25 12 *", "12-25T00:00:00"),
    "0 0 0 L * *": ("0 0 0 L * *", "01-31T00:00:00 02-28T00:00:00"),
    "0 0 0 L-3 * *": ("0 0 0 L-3 * *", "01-28T00:00:00 02-25T00:00:00"),
    "0 0 0 1W * *": ("0 0 0 1W * *", "02-02T00:00:00 03-02T00:00:00"),
    "0 0 0 LW * *": ("0 0 0 LW * *", "01-30T00:00:00 02-27T00:00:00"),
    "0 0 0 * * 5L": ("0 0 0 * * 5L", "01-30T00:00:00 02-27T00:00:00"),
    "0 0 0 * * THUL": ("0 0 0 * * 4L", "01-29T00:00:00 02-26T00:00:00"),
    "0 0 0 ? * 5#2": ("0 0 0 * * 5#2", "01-09T00:00:00 02-13T00:00:00"),
    "0 0 0 ? * MON#1": ("0 0 0 * * 1#1", "01-05T00:00:00 02-02T00:00:00"),
    "0 0 0 ? * SUN#1": ("0 0 0 * * 7#1", "01-04T00:00:00 02-01T00:00:00"),
    "0 0 0 * * 0": ("0 0 0 * * 0", "01-04T00:00:00 01-11T00:00:00"),
    "0 0 0 * * SUN": ("0 0 0 * * 0", "01-04T00:00:00 01-11T00:00:00"),
    "0 0 0 * * SAT-SUN": ("0 0 0 * * 6-7", "01-03T00:00:00 01-04T00:00:00 01-10T00:00:00"),
    "0 0 0 * * 7-2": ("0 0 0 * * 0-2", "01-04T00:00:00 01-05T00:00:00 01-06T00:00:00"),
    "0 0 0 13 * FRI": ("0 0 0 13 * 5", "02-13T00:00:00 03-13T00:00:00 11-13T00:00:00"),
    "0 0 0 1,L * *": ("0 0 0 1,L * *", "01-31T00:00:00 02-01T00:00:00 02-28T00:00:00"),
    "0 0 0 1W,15,LW * ?": ("0 0 0 15,1W,LW * *", "01-15T00:00:00 01-30T00:00:00 02-02T00:00:00"),
    "@hourly": ("0 0 * * * *", "01-01T01:00:00 01-01T02:00:00"),
    "@Daily": ("0 0 0 * * *", "01-02T00:00:00 01-03T00:00:00"),
    "@midnight": ("0 0 0 * * *", "01-02T00:00:00 01-03T00:00:00"),
    "@weekly": ("0 0 0 * * 0", "01-04T00:00:00 01-11T00:00:00"),
    "@monthly": ("0 0 0 1 * *", "02-01T00:00:00 03-01T00:00:00"),
    "@yearly": ("0 0 0 1 1 *", ""),
    "@annually": ("0 0 0 1 1 *", ""),
}
SPRING_REFUSED = {
    "0 0 * * *": 'leave out "dialect"',
    "0 0 0 * * * 2030": "7 given",
    "* * * * * *": "fires 1 s apart",
    "0 0 0 ? * L": "not part of the spring dialect here",
    "0 0 0 L-3W * *": "not part of the spring dialect here",
    "0 0 0 W * *": "such as 15W",
    "0 0 22-2 * * *": "write 22-23,0-2",
    "0 0 0 * * 8": "day-of-week is 0-7",
    "0 0 0 * * MON#0": "first (#1) to fifth (#5)",
    "0 0 0 * * MON#6": "first (#1) to fifth (#5)",
    "0 0 0 FRI * *": "for the day-of-week field",
    "0 0 0 32 * *": "day-of-month is 1-31",
    "0 60 * * * *": "for the start of the next hour write 0",
    "@reboot": "names no time",
    "? 0 0 * * *": "'?' in second",
}

K8S = {
    "0 0 13 * 5": ("0 0 13 * 5", "01-02T00:00:00 01-09T00:00:00 01-13T00:00:00"),
    "*/1 * * * *": ("* * * * *", "01-01T00:01:00 01-01T00:02:00"),
    "5/15 0 * * *": ("5-59/15 0 * * *", "01-01T00:05:00 01-01T00:20:00"),
    "3-59/15 0 * * *": ("3-59/15 0 * * *", "01-01T00:03:00 01-01T00:18:00"),
    "0 0 */10 * 1": ("0 0 */10 * 1", "01-05T00:00:00 01-11T00:00:00 01-12T00:00:00"),
    "0 0 ? * MON": ("0 0 * * 1", "01-05T00:00:00 01-12T00:00:00"),
    "0 0 1,* * mon": ("0 0 * * 1", "01-05T00:00:00 01-12T00:00:00"),
    "0 0 13 * ?": ("0 0 13 * *", "01-13T00:00:00 02-13T00:00:00"),
    "0 0 1 feb Sun": ("0 0 1 2 0", "02-01T00:00:00 02-08T00:00:00"),
    "@yearly": ("0 0 1 1 *", ""),
    "@annually": ("0 0 1 1 *", ""),
    "@monthly": ("0 0 1 * *", "02-01T00:00:00 03-01T00:00:00"),
    "@weekly": ("0 0 * * 0", "01-04T00:00:00 01-11T00:00:00"),
    "@daily": ("0 0 * * *", "01-02T00:00:00 01-03T00:00:00"),
    "@midnight": ("0 0 * * *", "01-02T00:00:00 01-03T00:00:00"),
    "@hourly": ("0 * * * *", "01-01T01:00:00 01-01T02:00:00"),
}
K8S_REFUSED = {
    "* * * * * *": "expected 5 fields",
    "0 0 * * 7": "Sunday is 0, Saturday 6",
    "0 0 L * *": "ask for a",
    "0 0 * * 5#2": "ask for a",
    "? * * * *": "'?' in minute",
    "0 22-2 * * *": "write 22-23,0-2",
    "0 0 * * sat-sun": "write 6,0",
    "*/0 * * * *": "at least 1",
    "@every 1h30m": '{"every": "PT1H30M"}',
    "@every 90s": '{"every": "PT1M30S"}',
    "@every 1.5h": "is an interval",
    "@every": "is an interval",
    "@reboot": "names no time",
    "TZ=UTC 0 9 * * *": '"timezone": "UTC"',
    "CRON_TZ=Asia/Tokyo 0 9 * * *": '"timezone": "Asia/Tokyo"',
}

SYSTEMD = {
    "minutely": ("*-*-* *:*:00", "01-01T00:01:00 01-01T00:02:00"),
    "hourly": ("*-*-* *:00:00", "01-01T01:00:00 01-01T02:00:00"),
    "daily": ("*-*-* 00:00:00", "01-02T00:00:00 01-03T00:00:00"),
    "Weekly": ("Mon *-*-* 00:00:00", "01-05T00:00:00 01-12T00:00:00"),
    "monthly": ("*-*-01 00:00:00", "02-01T00:00:00 03-01T00:00:00"),
    "quarterly": ("*-01,04,07,10-01 00:00:00", "04-01T00:00:00 07-01T00:00:00"),
    "semi-annually": ("*-01,07-01 00:00:00", "07-01T00:00:00"),
    "yearly": ("*-01-01 00:00:00", ""),
    "Thu,Fri 2026-*-1,5 11:12:13": (
        "Thu,Fri 2026-*-01,05 11:12:13",
        "01-01T11:12:13 02-05T11:12:13",
    ),
    "Sat,Thu,Mon..Wed,Sat..Sun": (
        "Mon..Thu,Sat,Sun *-*-* 00:00:00",
        "01-03T00:00:00 01-04T00:00:00",
    ),
    "Sat,Thu,Mon-Wed,Sat-Sun": ("Mon..Thu,Sat,Sun *-*-* 00:00:00", "01-03T00:00:00 01-04T00:00:00"),
    "Mon,Sun 26-*-* 2,1:23": ("Mon,Sun 2026-*-* 01..02:23:00", "01-04T01:23:00 01-04T02:23:00"),
    "Wed *-1": ("Wed *-*-01 00:00:00", "04-01T00:00:00 07-01T00:00:00"),
    "Wed, 17:48": ("Wed *-*-* 17:48:00", "01-07T17:48:00 01-14T17:48:00"),
    "Mon, Tue 10:00": ("Mon,Tue *-*-* 10:00:00", "01-05T10:00:00 01-06T10:00:00"),
    "monday *-12-* 17:00": ("Mon *-12-* 17:00:00", "12-07T17:00:00 12-14T17:00:00"),
    "Mon,Fri *-*-3,1,2 *:30:45": ("Mon,Fri *-*-01..03 *:30:45", "01-02T00:30:45 01-02T01:30:45"),
    "mon,fri *-1/2-1,3 12:30:45": ("Mon,Fri *-01/2-01,03 12:30:45", "05-01T12:30:45"),
    "12,14,13,12:20,10,30": ("*-*-* 12..14:10,20,30:00", "01-01T12:10:00 01-01T12:20:00"),
    "10-15": ("*-10-15 00:00:00", "10-15T00:00:00"),
    "03-05 08:05:40": ("*-03-05 08:05:40", "03-05T08:05:40"),
    "05:40": ("*-*-* 05:40:00", "01-01T05:40:00 01-02T05:40:00"),
    "2003-03-05": ("2003-03-05 00:00:00", ""),
    "*:2/3": ("*-*-* *:02/3:00", "01-01T00:02:00 01-01T00:05:00"),
    "*:0/15": ("*-*-* *:00/15:00", "01-01T00:15:00 01-01T00:30:00"),
    "9..11,13:00,30": ("*-*-* 09..11,13:00,30:00", "01-01T09:00:00 01-01T09:30:00"),
    "*-*~1": ("*-*~01 00:00:00", "01-31T00:00:00 02-28T00:00:00"),
    "*-*~05,3": ("*-*~03,05 00:00:00", "01-27T00:00:00 01-29T00:00:00 02-24T00:00:00"),
    "*-*~* 03:00": ("*-*-* 03:00:00", "01-01T03:00:00 01-02T03:00:00"),
    "*-02~03": ("*-02~03 00:00:00", "02-26T00:00:00"),
    "Mon *-05~07/1": ("Mon *-05~07/1 00:00:00", "05-25T00:00:00"),
    "Mon 2026-05~01..07": ("Mon 2026-05~01..07 00:00:00", "05-25T00:00:00"),
    "*-*~07/3": ("*-*~07/3 00:00:00", "01-25T00:00:00 01-28T00:00:00 01-31T00:00:00"),
}
SYSTEMD_REFUSED = {
    "*-02-30": "the last day of a month is ~01, such as *-02~01",
    "": "an empty calendar event",
    "test": "neither a weekday",
    "7": "is no date",
    "121212:1:2": "'121212' in hour",
    "24:00": "hour is 0-23, not 24",
    "*-*-32": "day is 1-31",
    "*-13-01": "month is 1-12",
    "2200-01-01": "year is 1970-2199",
    "2000-03-05.23 00:00:00": "two dots",
    "00:00:00/0.1": "whole seconds",
    "00:00:00.5": "whole seconds",
    "2016~11-22": "month is 1-12",
    "*-*~5/5": "give 1 to 4",
    "0/0:00": "give 1 to 23",
    "*:*/15": "write 00/15",
    "9-17:00": "9..17",
    "22..2:00": "write 2..22, or 22..23,0..2",
    "Fri..Mon": "write Fri,Sat,Sun,Mon",
    "Mon..": "neither a weekday",
    "*-*~1 UTC": '"timezone": "UTC"',
    "daily Europe/Berlin": '"timezone": "Europe/Berlin"',
    "17:00 2026-01-01": "not understood",
    "5 * * * *": "not understood",
    "1:2:3:4": "hour:minute:second",
    "Wed..Sat,Tue 12-10-15 1:2:3": "never matches",
    "*:*:0/5": "fires 5 s apart",
    "*:*:*": "fires 1 s apart",
}

ACCEPTED = {
    "quartz": QUARTZ,
    "aws": AWS,
    "spring": SPRING,
    "k8s": K8S,
    "robfig": K8S,
    "systemd": SYSTEMD,
}
REFUSED = {
    "quartz": QUARTZ_REFUSED,
    "aws": AWS_REFUSED,
    "spring": SPRING_REFUSED,
    "k8s": K8S_REFUSED,
    "robfig": K8S_REFUSED,
    "systemd": SYSTEMD_REFUSED,
}


def _after(spec: Cron, count: int) -> list[str]:
    found, t = [], NEW_YEAR
    for _ in range(count):
        slot = plan(spec).next_after(t)
        assert slot is not None
        found.append(datetime.fromtimestamp(slot / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
        t = slot
    return found


@pytest.mark.parametrize(
    ("dialect", "text", "canonical", "runs"),
    [
        (dialect, text, canonical, runs)
        for dialect, table in ACCEPTED.items()
        for text, (canonical, runs) in table.items()
    ],
)
def test_a_text_of_a_dialect_is_stored_in_its_canonical_form_and_runs_as_documented(
    dialect: str, text: str, canonical: str, runs: str
) -> None:
    spec = parse_cron(text, "UTC", dialect=dialect)
    assert spec == Cron(canonical, text, "UTC", dialect)
    wanted = [f"2026-{run}" for run in runs.split()]
    assert _after(spec, len(wanted)) == wanted


@pytest.mark.parametrize(
    ("dialect", "text", "canonical"),
    [
        (dialect, text, ACCEPTED[dialect][text][0])
        for dialect in ACCEPTED
        for text in ACCEPTED[dialect]
    ],
)
def test_the_canonical_form_of_a_dialect_is_read_as_the_same(
    dialect: str, text: str, canonical: str
) -> None:
    assert cron.read(canonical, dialect) == cron.read(text, dialect)


@pytest.mark.parametrize(
    ("dialect", "text", "words"),
    [(dialect, text, words) for dialect in REFUSED for text, words in REFUSED[dialect].items()],
)
def test_a_text_outside_its_dialect_is_refused_with_what_would_be_right(
    dialect: str, text: str, words: str
) -> None:
    refused = parse_cron(text, "UTC", dialect=dialect)
    assert isinstance(refused, Refused), refused
    assert refused.pointer == "/schedule"
    assert words in refused.detail


def test_no_dialect_is_ever_guessed() -> None:
    for dialect in ("quartz", "aws", "spring", "systemd"):
        for text in ACCEPTED[dialect]:
            if not text.startswith("@"):
                assert isinstance(parse_cron(text, "UTC"), Refused), text


def test_an_unknown_dialect_is_refused_with_the_known_ones() -> None:
    refused = parse_cron("0 9 * * *", "UTC", dialect="Quartz")
    assert isinstance(refused, Refused)
    assert refused.pointer == "/dialect"
    assert [name for name in cron.DIALECTS if name not in refused.detail] == []


@pytest.mark.parametrize("dialect", cron.DIALECTS)
def test_seconds_are_accepted_where_the_tenant_may_have_them(dialect: str) -> None:
    text = {"quartz": "*/5 * * * * ?", "spring": "*/5 * * * * *", "systemd": "*:*:0/5"}.get(dialect)
    if text is None:
        return
    spec = parse_cron(text, "UTC", dialect=dialect, min_interval_s=1)
    assert isinstance(spec, Cron)
    assert _after(spec, 2) == ["2026-01-01T00:00:05", "2026-01-01T00:00:10"]
    assert isinstance(parse_cron(text, "UTC", dialect=dialect, min_interval_s=6), Refused)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("quartz", "0 30 2 * * ?"),
        ("aws", "30 2 * * ? *"),
        ("spring", "0 30 2 * * *"),
        ("systemd", "02:30"),
    ],
)
def test_the_clock_changes_of_a_fixed_time_are_those_of_the_contract_in_every_dialect(
    dialect: str, text: str
) -> None:
    spec = parse_cron(text, "America/New_York", dialect=dialect)
    assert isinstance(spec, Cron)
    day_before = 1_772_884_800_000  # 2026-03-07T12:00Z
    assert plan(spec).next_after(day_before) == 1_772_953_200_000  # 2026-03-08T07:00Z
    skipped = parse_cron(text, "America/New_York", dialect=dialect, gap="skip")
    assert isinstance(skipped, Cron)
    assert plan(skipped).next_after(day_before) == 1_773_037_800_000  # 2026-03-09T06:30Z
    said = " ".join(warnings(spec, 1_790_000_000_000))
    assert "02:30 does not exist in America/New_York" in said


def test_a_schedule_whose_years_are_over_has_no_next_slot_but_had_a_last_one() -> None:
    spec = parse_cron("0 0 12 * * ? 2020", "America/New_York", dialect="quartz")
    assert isinstance(spec, Cron)
    assert plan(spec).next_after(NEW_YEAR) is None
    assert plan(spec).next_after(253_402_300_799_999) is None
    last = 1_609_434_000_000  # 2020-12-31T17:00Z
    assert plan(spec).last_until(NEW_YEAR) == last
    assert plan(spec).last_until(253_402_300_799_999) == last
    assert plan(spec).next_after(last - 1) == last
    assert plan(spec).next_after(last) is None
    first = 1_577_898_000_000  # 2020-01-01T17:00Z
    assert plan(spec).next_after(0) == first
    assert plan(spec).last_until(first - 1) is None


def test_a_year_of_leap_days_only_is_found_from_far_away() -> None:
    spec = parse_cron("0 0 29 FEB ? 2096,2104", "UTC", dialect="aws")
    assert isinstance(spec, Cron)
    assert plan(spec).next_after(0) == 3_981_312_000_000
    assert plan(spec).next_after(3_981_312_000_000) == 4_233_686_400_000
    assert plan(spec).last_until(4_233_686_399_999) == 3_981_312_000_000


@pytest.mark.parametrize(
    ("dialect", "text", "sentence"),
    [
        ("quartz", "0 0 9 31W * ?", "nothing runs in February, April, June, September and Novem"),
        ("quartz", "0 0 9 ? 2 MON#5", "29 February exists in leap years only"),
        ("quartz", "0 0 9 * * ? 2026-2028", "nothing runs after the year 2028"),
        ("quartz", "0 0 9 * * ? 2020", "never runs again: its last year is 2020"),
        ("aws", "0 9 ? * SAT,SUN *", "never on a weekday"),
        ("spring", "0 0 9 13 * FRI", "both day fields must match: day 13 of the month and Fri"),
        ("k8s", "0 9 13 * FRI", "the day fields are ORed: this runs on day 13 of the month"),
        ("k8s", "0 9 */2 * FRI", "the day fields are ORed: this runs on day */2 of the month"),
        ("systemd", "*-*-31", "nothing runs in February"),
        ("quartz", "30 30 2 * * ?", "runs at 03:00 on 14 March 2027 since 02:30:30 does not exist"),
        ("quartz", "15 30 1 * * ?", "01:30:15 on 1 November 2026 occurs twice"),
    ],
)
def test_a_surprise_is_said_in_every_dialect(dialect: str, text: str, sentence: str) -> None:
    spec = parse_cron(text, "America/New_York", dialect=dialect)
    assert isinstance(spec, Cron)
    said = warnings(spec, 1_790_000_000_000)  # 2026-09-21
    assert any(one.startswith(sentence) for one in said), said


@pytest.mark.parametrize("dialect", ["quartz", "spring", "aws", "systemd"])
def test_an_ordinary_schedule_has_no_surprises(dialect: str) -> None:
    text = {
        "quartz": "0 0 12 ? * MON-FRI",
        "spring": "0 0 12 * * MON-FRI",
        "aws": "0 12 ? * MON-FRI *",
        "systemd": "Mon..Fri 12:00",
    }[dialect]
    spec = parse_cron(text, "America/New_York", dialect=dialect)
    assert isinstance(spec, Cron)
    assert warnings(spec, 1_790_000_000_000) == ()
