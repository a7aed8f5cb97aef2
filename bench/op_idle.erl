%% What live instances cost that nobody calls: threads, and resident memory.
-module(op_idle).
-behaviour(bench_ops).

-export([run/1]).

-define(KIB, 1024).

%% @doc Of each runner. Without Linux's /proc all figures are 0.
-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners, size := #{instances := Count}}) ->
    #{samples => [], figures => lists:append([of_runner(Runner, Count) || Runner <- Runners])}.

of_runner(Runner, Count) ->
    Mod = bench_ops:trivial(#{instances => Count + 1, keep_resident => own(Runner)}),
    Template = bench_guest:must(prepare, wasmtime:prepare(Mod, #{runner => Runner})),
    %% What the first instance starts is not counted.
    First = called(bench_guest:must(instantiate, wasmtime:instantiate(Template))),
    Start = used(),
    Instances = [bench_guest:must(instantiate, wasmtime:instantiate(Template))
                 || _ <- lists:seq(1, Count)],
    Made = used(),
    lists:foreach(fun called/1, Instances),
    Called = used(),
    lists:foreach(fun wasmtime:destroy/1, [First | Instances]),
    figures(Runner, Count, Start, Made, Called).

%% A pool of each runner's own, whose slots nobody has touched.
own(thread) -> 1 bsl 20;
own(scheduler) -> 2 bsl 20.

figures(Runner, Count, {Threads0, Rss0}, {Threads1, Rss1}, {Threads2, Rss2}) ->
    Title = fun(What) -> lists:concat([Runner, ", ", Count, " instances: ", What]) end,
    Each = fun(Rss) -> (Rss - Rss0) / Count / ?KIB end,
    {NoThread, Small} = bars(Runner),
    bench_ops:value(Title("OS threads more"), max(Threads1, Threads2) - Threads0, count, NoThread)
        ++ bench_ops:value(Title("resident each, never called"), Each(Rss1), kib, none)
        ++ bench_ops:value(Title("resident each, called once"), Each(Rss2), kib, Small).

bars(scheduler) -> {{at_most, 0}, {at_most, 64}};
bars(thread) -> {none, none}.

called(Inst) ->
    {ok, [42]} = wasmtime:call(Inst, <<"add">>, [20, 22]),
    Inst.

used() ->
    true = erlang:garbage_collect(),
    Threads = case file:list_dir("/proc/self/task") of
        {ok, Names} -> length(Names);
        {error, _} -> 0
    end,
    #{rss := Rss} = bench_resident:resident(),
    {Threads, Rss}.
