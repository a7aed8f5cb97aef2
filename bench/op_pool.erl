%% A request of a wasmtime_pool that has a free place, beside the same three calls without a pool: what
%% places, rows, statistics and the watch over the caller cost.
-module(op_pool).
-behaviour(bench_ops).

-export([run/1]).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners} = Context) ->
    Mod = bench_ops:trivial(),
    Pools = [{Runner, started(Mod, Runner)} || Runner <- Runners],
    Alone = bench_ops:timed_rows(Runners, fun(Runner) ->
        Template = bench_guest:must(prepare, wasmtime:prepare(Mod, #{runner => Runner})),
        {title(Runner, "alone"), fun() -> timed(fun() -> lived(Template) end) end}
    end),
    Pooled = bench_ops:timed_rows(Pools, fun({Runner, Pool}) ->
        Request = fun() -> wasmtime_pool:request(Pool, <<"add">>, [20, 22]) end,
        {title(Runner, "pool"), fun() -> timed(Request) end}
    end),
    Samples = bench_ops:measure(Alone ++ Pooled, Context),
    [ok = wasmtime_pool:stop(Pool) || {_, Pool} <- Pools],
    #{samples => Samples, figures => lists:append([figure(Runner, Samples) || Runner <- Runners])}.

started(Mod, Runner) ->
    Opts = #{module => Mod, size => 4, telemetry => none, instance => #{runner => Runner}},
    bench_guest:must("the pool", wasmtime_pool:start_link(Opts)).

title(Runner, What) -> atom_to_list(Runner) ++ ", " ++ What.

figure(Runner, Samples) ->
    P50 = fun(What) -> bench_ops:p50(title(Runner, What), Samples) end,
    bench_ops:value(atom_to_list(Runner) ++ ", a pool's part", P50("pool") - P50("alone"), us, none).

lived(Template) ->
    {ok, Inst} = wasmtime:instantiate(Template),
    Answer = wasmtime:call(Inst, <<"add">>, [20, 22]),
    ok = wasmtime:destroy(Inst),
    Answer.

timed(Do) ->
    case bench_stats:timed(Do) of
        {Nanos, {ok, [42]}} -> Nanos;
        {_, Other} -> bench_guest:fail("add answered ~tp", [Other])
    end.
