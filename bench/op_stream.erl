%% Messages to a guest that waits for them in one call, and back: one at a time, and many at once.
-module(op_stream).
-behaviour(bench_ops).

-export([run/1]).

-define(GUEST,
        "(module (import \"erlang\" \"send\" (func $send (param i32 i32)))"
        " (import \"erlang\" \"recv\" (func $recv (param i32 i32) (result i32)))"
        " (memory (export \"memory\") 1)"
        " (func (export \"echo\") (local i32)"
        "  (loop (local.set 0 (call $recv (i32.const 0) (i32.const 65536)))"
        "   (if (i32.ge_s (local.get 0) (i32.const 0))"
        "    (then (call $send (i32.const 0) (local.get 0)) (br 1))))))").
%% Messages of one sample in bulk.
-define(BULK, 200).
-define(MESSAGE, <<"sixteen bytes ..">>).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners} = Context) ->
    Mod = bench_guest:must("the guest of streams", wasmtime:compile({wat, ?GUEST})),
    Live = [{Runner, live(Mod, Runner)} || Runner <- Runners],
    Rows = [{title(What, Runner), row(What, Inst)} || What <- [round_trip, bulk],
                                                      {Runner, {Inst, _}} <- Live],
    Samples = bench_ops:measure(Rows, Context),
    lists:foreach(fun({_, Guest}) -> ok = gone(Guest) end, Live),
    Ratio = fun(What) ->
        bench_ops:ratio("thread / scheduler, " ++ what(What), title(What, thread),
                        title(What, scheduler), Samples, none)
    end,
    #{samples => Samples, figures => Ratio(round_trip) ++ Ratio(bulk)}.

%% An instance, and the process that is in its one long call.
live(Mod, Runner) ->
    Inst = bench_guest:instantiate(Mod, #{runner => Runner}),
    {Inst, spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"echo">>, [])) end)}.

gone({Inst, {Pid, Monitor}}) ->
    ok = wasmtime:close(Inst),
    receive {'DOWN', Monitor, process, Pid, {ok, []}} -> wasmtime:destroy(Inst) end.

row(What, Inst) ->
    Messages = case What of round_trip -> 1; bulk -> ?BULK end,
    fun(Count) -> [sample(Inst, Messages) || _ <- lists:seq(1, Count)] end.

sample(Inst, Messages) ->
    Ref = wasmtime:ref(Inst),
    Each = lists:seq(1, Messages),
    {Nanos, ok} = bench_stats:timed(fun() ->
        lists:foreach(fun(_) -> ok = wasmtime:send(Inst, ?MESSAGE) end, Each),
        lists:foreach(fun(_) -> receive {wasmtime_stream, Ref, channel, ?MESSAGE} -> ok end end, Each)
    end),
    Nanos / Messages.

title(What, Runner) -> atom_to_list(Runner) ++ ", " ++ what(What).

what(round_trip) -> "there and back";
what(bulk) -> lists:concat([?BULK, " at once, each"]).
