%% What a process notices of guests that compute for ever on its schedulers: it sleeps for a
%% millisecond, works for one, and sees when it began and when it was done. Two schedulers, four
%% guests.
-module(op_fairness).
-behaviour(bench_ops).

-export([run/1]).

-import(bench_stats, [now_ns/0]).

-define(GUESTS, 4).
-define(SCHEDULERS, 2).
-define(MS, 1_000_000).
-define(SPIN, "(module (func (export \"spin\") (loop $again (br $again))))").

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners, size := #{ms := Ms}}) ->
    Mod = bench_guest:must("an endless guest", wasmtime:compile({wat, ?SPIN})),
    Before = erlang:system_flag(schedulers_online, min(?SCHEDULERS,
                                                       erlang:system_info(schedulers))),
    try
        Rounds = calibrated(),
        Work = fun() -> worker(Rounds, Ms) end,
        Beside = [{Runner, bench_watch:during(fun() -> with_guests(Mod, Runner, Work) end)}
                  || Runner <- Runners],
        Samples = samples("no guests", Work())
            ++ lists:append([samples(beside(Runner), Taken) || {Runner, {Taken, _}} <- Beside]),
        #{samples => Samples,
          figures => lists:append([figures(Runner, Samples, Long)
                                   || {Runner, {_, Long}} <- Beside])}
    after
        erlang:system_flag(schedulers_online, Before)
    end.

beside(Runner) -> lists:concat([?GUESTS, " endless guests, ", Runner]).

samples(Title, Taken) ->
    {Late, Took} = lists:unzip(Taken),
    [{late(Title), Late}, {Title ++ ": 1 ms of work takes", Took}].

late(Title) -> Title ++ ": work begins late by".

figures(Runner, Samples, Long) ->
    {_, Late} = lists:keyfind(late(beside(Runner)), 1, Samples),
    {Delay, Count} = bars(Runner),
    bench_ops:value("delay p99, " ++ beside(Runner),
                    bench_stats:ms(bench_stats:percentile(99, Late)), ms, Delay)
        ++ bench_ops:value("long_schedule meanwhile", length(Long), count, Count).

bars(scheduler) -> {{at_most, 5}, {at_most, 0}};
bars(thread) -> {none, none}.

%% ---- the process ----------------------------------------------------------------------------

%% Nanoseconds of each turn: how late the work began, and how long it took. The timer is part of
%% the delay: without guests it is all of it.
worker(Rounds, Ms) ->
    [Taken] = bench_concurrent:together(1, fun(Go) ->
        work(Go() + Ms * ?MS, Rounds, [])
    end),
    Taken.

work(End, Rounds, Taken) ->
    Slept = now_ns(),
    receive after 1 -> ok end,
    Began = now_ns(),
    ok = labour(Rounds),
    Done = now_ns(),
    Next = [{max(0, Began - Slept - ?MS), Done - Began} | Taken],
    case Done < End of
        true -> work(End, Rounds, Next);
        false -> Next
    end.

%% What ordinary programs do: terms are made, sorted and put together. It spends reductions, and is
%% scheduled out, as those do.
labour(0) -> ok;
labour(N) ->
    Terms = [{X * 7919 rem 101, integer_to_binary(X)} || X <- lists:seq(1, 20)],
    _ = iolist_to_binary([Text || {_, Text} <- lists:sort(Terms)]),
    labour(N - 1).

%% Rounds of a millisecond. The fastest of some tries: nobody was in the way.
calibrated() ->
    Rounds = 200,
    Try = fun(_) -> element(1, bench_stats:timed(fun() -> labour(Rounds) end)) end,
    max(1, Rounds * ?MS div lists:min(lists:map(Try, lists:seq(1, 50)))).

%% ---- the guests -----------------------------------------------------------------------------

with_guests(Mod, Runner, Fun) ->
    Spinning = [spinning(Mod, Runner) || _ <- lists:seq(1, ?GUESTS)],
    try Fun()
    after lists:foreach(fun stop/1, Spinning)
    end.

spinning(Mod, Runner) ->
    Inst = bench_guest:instantiate(Mod, #{runner => Runner}),
    {Inst, spawn_monitor(fun() -> exit({ended, wasmtime:call(Inst, <<"spin">>, [])}) end)}.

%% A guest that ended before nobody knows when would have measured nothing.
stop({Inst, {_, Monitor}}) ->
    ok = interrupted(Inst, 100),
    receive
        {'DOWN', Monitor, _, _, {ended, {error, #{kind := interrupt}}}} -> ok;
        {'DOWN', Monitor, _, _, Reason} -> bench_guest:fail("an endless guest: ~tp", [Reason])
    end,
    ok = wasmtime:destroy(Inst).

%% In a very short run the guest may not have begun.
interrupted(Inst, Tries) ->
    case wasmtime:interrupt(Inst) of
        ok -> ok;
        not_running when Tries > 0 ->
            receive after 10 -> ok end,
            interrupted(Inst, Tries - 1);
        not_running ->
            bench_guest:fail("an endless guest did not run", [])
    end.
