%% Calls and host calls of a process whose mailbox is full of messages that nobody receives.
-module(op_mailbox).
-behaviour(bench_ops).

-export([run/1]).

%% A message costs time to send and to forget: few rounds, more samples in each.
-define(ROUNDS, 4).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners, size := #{samples := Samples, messages := Messages}}) ->
    [Taken] = bench_concurrent:together(1, fun(Go) ->
        _ = Go(),
        measured(Runners, max(1, Samples div ?ROUNDS), Messages)
    end),
    Ratio = fun(What, Runner) ->
        bench_ops:ratio(title(What, Runner) ++ ": full / empty", title(What, Runner, Messages),
                        title(What, Runner, 0), Taken, {at_most, 1.5})
    end,
    #{samples => Taken,
      figures => lists:append([Ratio(What, Runner) || What <- [call, host_call],
                                                      Runner <- Runners])}.

measured(Runners, Count, Messages) ->
    Mod = bench_host_call:guest(),
    Live = [{Runner, bench_host_call:live(Mod, Runner)} || Runner <- Runners],
    Round = fun(_) ->
        Empty = taken(Live, Count, 0),
        lists:foreach(fun(N) -> self() ! {unrelated, N} end, lists:seq(1, Messages)),
        Full = taken(Live, Count, Messages),
        ok = forget(Messages),
        Empty ++ Full
    end,
    _ = taken(Live, Count, 0),
    Rounds = lists:append(lists:map(Round, lists:seq(1, ?ROUNDS))),
    lists:foreach(fun({_, Inst}) -> ok = wasmtime:destroy(Inst) end, Live),
    [{Title, lists:append([Nanos || {Same, Nanos} <- Rounds, Same =:= Title])}
     || Title <- [title(What, Runner, N) || What <- [call, host_call], Runner <- Runners,
                                            N <- [0, Messages]]].

%% Single calls, so that every one waits once more.
taken(Live, Count, Messages) ->
    [{title(What, Runner, Messages), [once(What, Inst) || _ <- lists:seq(1, Count)]}
     || {Runner, Inst} <- Live, What <- [call, host_call]].

once(call, Inst) ->
    {Nanos, {ok, [1]}} = bench_stats:timed(fun() -> wasmtime:call(Inst, <<"one">>, []) end),
    Nanos;
once(host_call, Inst) ->
    {Nanos, {ok, [1]}} = bench_stats:timed(fun() -> wasmtime:call(Inst, <<"calls">>, [1]) end),
    Nanos.

forget(0) -> ok;
forget(N) -> receive {unrelated, _} -> forget(N - 1) end.

title(What, Runner, 0) -> title(What, Runner) ++ ", empty mailbox";
title(What, Runner, N) -> title(What, Runner) ++ lists:concat([", ", N, " messages"]).

title(call, Runner) -> atom_to_list(Runner) ++ ", call";
title(host_call, Runner) -> atom_to_list(Runner) ++ ", call with a host call".
