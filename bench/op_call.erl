%% Calling a function that does nothing much, in a live instance.
-module(op_call).
-behaviour(bench_ops).

-export([run/1]).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners} = Context) ->
    Mod = bench_ops:trivial(),
    Live = [{Runner, bench_guest:instantiate(Mod, #{runner => Runner})} || Runner <- Runners],
    Rows = bench_ops:timed_rows(Live, fun({Runner, Inst}) ->
        {atom_to_list(Runner), fun() -> called(Inst) end}
    end),
    Samples = bench_ops:measure(Rows ++ bench_ops:floor_rows(Context, "call"), Context),
    lists:foreach(fun({_, Inst}) -> ok = wasmtime:destroy(Inst) end, Live),
    #{samples => Samples,
      figures => bench_ops:ratio("thread / scheduler", "thread", "scheduler", Samples, none)
          ++ bench_ops:ratio("scheduler / plain Rust", "scheduler", "plain Rust", Samples, none)}.

called(Inst) ->
    {Nanos, Result} = bench_stats:timed(fun() -> wasmtime:call(Inst, <<"add">>, [20, 22]) end),
    case Result of
        {ok, [42]} -> Nanos;
        Other -> bench_guest:fail("add answered ~tp", [Other])
    end.
