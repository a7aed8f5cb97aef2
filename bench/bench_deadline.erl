%% How late a deadline ends a guest that never would.
-module(bench_deadline).

-export([run/3, late/2]).

-define(TIMEOUT, 50).

%% @doc Milliseconds beyond `timeout => 50' of `while True: pass', that many times.
-spec run(thread | scheduler, bench_guest:guest(), pos_integer()) -> #{p50 | p99 | max => float()}.
run(Runner, #{module := Mod} = Guest, Runs) ->
    Root = bench_guest:root(Guest, "endless", [{"main.py", "while True: pass\n"}]),
    Options = bench_guest:options(Runner, Guest, Root),
    Over = [bench_stats:ms(python(Mod, Options)) || _ <- lists:seq(1, Runs)],
    #{p50 => bench_stats:median(Over), p99 => bench_stats:percentile(99, Over),
      max => lists:max(Over)}.

python(Mod, Options) ->
    Inst = bench_guest:instantiate(Mod, Options),
    Late = late(Inst, <<"handle">>),
    ok = wasmtime:destroy(Inst),
    Late.

%% @doc Nanoseconds beyond `timeout => 50' until the call of an endless export came back.
-spec late(wasmtime:instance(), binary()) -> integer().
late(Inst, Export) ->
    Start = bench_stats:now_ns(),
    Result = wasmtime:call(Inst, Export, [], #{timeout => ?TIMEOUT}),
    Elapsed = bench_stats:now_ns() - Start,
    case Result of
        {error, #{class := trap, kind := timeout}} -> Elapsed - ?TIMEOUT * 1_000_000;
        Other -> bench_guest:fail("an endless guest with a timeout answered ~tp", [Other])
    end.
