%% How long after its `timeout' the call of an endless loop returns.
-module(op_deadline).
-behaviour(bench_ops).

-export([run/1]).

-define(SPIN, "(module (func (export \"spin\") (loop $again (br $again))))").
-define(TURN, 5).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners, size := #{deadlines := Count}}) ->
    Mod = bench_guest:must("an endless guest", wasmtime:compile({wat, ?SPIN})),
    Live = [{Runner, bench_guest:instantiate(Mod, #{runner => Runner})} || Runner <- Runners],
    Rows = bench_ops:timed_rows(Live, fun({Runner, Inst}) ->
        {atom_to_list(Runner), fun() -> bench_deadline:late(Inst, <<"spin">>) end}
    end),
    Samples = bench_rounds:run(Rows, 1, bench_rounds:turns(Count, ?TURN)),
    lists:foreach(fun({_, Inst}) -> ok = wasmtime:destroy(Inst) end, Live),
    #{samples => Samples,
      figures => lists:append([figure(Title, Nanos) || {Title, Nanos} <- Samples])}.

figure(Title, Nanos) ->
    P99 = bench_stats:ms(bench_stats:percentile(99, Nanos)),
    bench_ops:value("beyond timeout => 50, p99, " ++ Title, P99, ms, {at_most, 1}).
