%% How late a deadline ends a guest that never would.
-module(bench_deadline).

-export([run/2]).

-define(RUNS, 20).
-define(TIMEOUT, 50).

%% @doc Milliseconds beyond `timeout => 50' of `while True: pass'.
-spec run(thread | scheduler, bench_guest:guest()) -> #{p50 | max => float()}.
run(Runner, #{module := Mod} = Guest) ->
    Root = bench_guest:root(Guest, "endless", [{"main.py", "while True: pass\n"}]),
    Options = bench_guest:options(Runner, Guest, Root),
    Over = [late(Mod, Options) || _ <- lists:seq(1, ?RUNS)],
    #{p50 => bench_stats:median(Over), max => lists:max(Over)}.

late(Mod, Options) ->
    Inst = bench_guest:instantiate(Mod, Options),
    Start = bench_stats:now_ns(),
    Result = wasmtime:call(Inst, <<"handle">>, [], #{timeout => ?TIMEOUT}),
    Elapsed = bench_stats:now_ns() - Start,
    ok = wasmtime:destroy(Inst),
    case Result of
        {error, #{class := trap, kind := timeout}} -> bench_stats:ms(Elapsed) - ?TIMEOUT;
        Other -> bench_guest:fail("an endless guest with a timeout answered ~tp", [Other])
    end.
