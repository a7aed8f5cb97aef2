%% @private
%% What a pool counts: requests by their end, and two histograms of times.
%% Rule: counting is a few writes to words that schedulers do not share; reading sums them up.
-module(wasmtime_pool_stats).

-export([new/0, count/2, time/3, totals/1, summary/2]).
-export_type([ending/0, timing/0, summary/0]).

-type ending() :: done | failed | overloaded.
-type timing() :: latency | queue.
-type summary() :: #{count | mean | p50 | p90 | p99 | max => non_neg_integer()}.
%% Times in microseconds.

%% A bucket is 2^(1/8) times as wide as the one before: a percentile is off by at most 9 percent.
-define(PER_DOUBLING, 8).
%% Microseconds up to 2^40: twelve days.
-define(MAX, 16#FF_FFFF_FFFF).
-define(BUCKETS, 321).
-define(TOTALS, 3).
%% A histogram is a sum of microseconds and the buckets.
-define(HISTOGRAM, (?BUCKETS + 1)).

-spec new() -> counters:counters_ref().
new() -> counters:new(?TOTALS + 2 * ?HISTOGRAM, [write_concurrency]).

%% @doc A request ended so.
-spec count(counters:counters_ref(), ending()) -> ok.
count(Stats, done) -> counters:add(Stats, 1, 1);
count(Stats, failed) -> counters:add(Stats, 2, 1);
count(Stats, overloaded) -> counters:add(Stats, 3, 1).

%% @doc A request took so long, in native time units.
-spec time(counters:counters_ref(), timing(), integer()) -> ok.
time(Stats, Timing, Native) ->
    Micros = max(0, min(?MAX, erlang:convert_time_unit(Native, native, microsecond))),
    Base = base(Timing),
    ok = counters:add(Stats, Base, Micros),
    counters:add(Stats, Base + 1 + bucket(Micros), 1).

bucket(0) -> 0;
bucket(Micros) -> min(?BUCKETS - 1, 1 + trunc(math:log2(Micros) * ?PER_DOUBLING)).

%% The largest time of a bucket.
bound(0) -> 0;
bound(Bucket) -> trunc(math:pow(2, Bucket / ?PER_DOUBLING)).

base(latency) -> ?TOTALS + 1;
base(queue) -> ?TOTALS + 1 + ?HISTOGRAM.

-spec totals(counters:counters_ref()) -> #{ending() => non_neg_integer()}.
totals(Stats) ->
    #{done => counters:get(Stats, 1), failed => counters:get(Stats, 2),
      overloaded => counters:get(Stats, 3)}.

%% @doc The times that were counted: percentiles are upper bounds of their buckets.
-spec summary(counters:counters_ref(), timing()) -> summary().
summary(Stats, Timing) ->
    Base = base(Timing),
    Counts = [{Bucket, Count} || Bucket <- lists:seq(0, ?BUCKETS - 1),
                                 Count <- [counters:get(Stats, Base + 1 + Bucket)], Count > 0],
    case lists:sum([Count || {_, Count} <- Counts]) of
        0 -> #{count => 0, mean => 0, p50 => 0, p90 => 0, p99 => 0, max => 0};
        Total ->
            At = fun(Share) -> bound(at(Counts, ceil(Total * Share))) end,
            #{count => Total, mean => counters:get(Stats, Base) div Total,
              p50 => At(0.5), p90 => At(0.9), p99 => At(0.99), max => At(1)}
    end.

%% The bucket of the sample with this rank.
at([{Bucket, _}], _) -> Bucket;
at([{Bucket, Count} | _], Rank) when Rank =< Count -> Bucket;
at([{_, Count} | Rest], Rank) -> at(Rest, Rank - Count).
