%% The whole life of an instance of a trivial module: instantiate, call, destroy.
-module(op_cycle).
-behaviour(bench_ops).

-export([run/1]).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners} = Context) ->
    Mod = bench_ops:trivial(),
    Rows = bench_ops:timed_rows(Runners, fun(Runner) ->
        Template = bench_guest:must(prepare, wasmtime:prepare(Mod, #{runner => Runner})),
        {atom_to_list(Runner), fun() -> lived(Template) end}
    end),
    Samples = bench_ops:measure(Rows ++ bench_ops:floor_rows(Context, "cycle"), Context),
    #{samples => Samples, figures => figures(Samples)}.

figures(Samples) ->
    P50 = case lists:keymember("scheduler", 1, Samples) of
        true -> bench_ops:value("scheduler, p50", bench_ops:p50("scheduler", Samples), us,
                                {at_most, 20});
        false -> []
    end,
    P50 ++ bench_ops:ratio("scheduler / plain Rust", "scheduler", "plain Rust", Samples,
                           {at_most, 2})
        ++ bench_ops:ratio("thread / scheduler", "thread", "scheduler", Samples, none).

lived(Template) ->
    {Nanos, Result} = bench_stats:timed(fun() ->
        {ok, Inst} = wasmtime:instantiate(Template),
        Answer = wasmtime:call(Inst, <<"add">>, [20, 22]),
        ok = wasmtime:destroy(Inst),
        Answer
    end),
    case Result of
        {ok, [42]} -> Nanos;
        Other -> bench_guest:fail("add answered ~tp", [Other])
    end.
