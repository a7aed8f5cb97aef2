%% Figures from samples. Rule: a percentile is a sample that was measured, never in between.
-module(bench_stats).

-export([percentile/2, median/1, summary/1, us/1, ms/1, now_ns/0, timed/1]).

%% @doc The sample of nearest rank: the smallest that at least P percent do not exceed.
-spec percentile(number(), [number(), ...]) -> number().
percentile(P, Samples) ->
    Rank = ceil(P / 100 * length(Samples)),
    lists:nth(max(1, Rank), lists:sort(Samples)).

-spec median([number(), ...]) -> number().
median(Samples) -> percentile(50, Samples).

%% @doc p50, p90 and p99 in microseconds, of nanoseconds.
-spec summary([number(), ...]) -> #{p50 | p90 | p99 => float()}.
summary(Samples) ->
    Sorted = lists:sort(Samples),
    #{p50 => us(percentile(50, Sorted)), p90 => us(percentile(90, Sorted)),
      p99 => us(percentile(99, Sorted))}.

%% @doc Nanoseconds in microseconds.
-spec us(number()) -> float().
us(Nanos) -> Nanos / 1_000.

%% @doc Nanoseconds in milliseconds.
-spec ms(number()) -> float().
ms(Nanos) -> Nanos / 1_000_000.

-spec now_ns() -> integer().
now_ns() -> erlang:monotonic_time(nanosecond).

%% @doc Nanoseconds of a function, and what it answered.
-spec timed(fun(() -> Result)) -> {integer(), Result}.
timed(Fun) ->
    Start = now_ns(),
    Result = Fun(),
    {now_ns() - Start, Result}.
