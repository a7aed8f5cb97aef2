%% Making an instance of a trivial module: with options each time, and from a template.
-module(op_instantiate).
-behaviour(bench_ops).

-export([run/1]).

-spec run(bench_ops:context()) -> bench_ops:result().
run(#{runners := Runners} = Context) ->
    Mod = bench_ops:trivial(),
    Rows = bench_ops:timed_rows([{Runner, How} || Runner <- Runners, How <- [options, prepared]],
                                fun(Key) -> row(Key, Mod) end),
    Samples = bench_ops:measure(Rows ++ bench_ops:floor_rows(Context, "instantiate"), Context),
    #{samples => Samples,
      figures => lists:append(
          [bench_ops:ratio("thread / scheduler", "thread, prepared", "scheduler, prepared", Samples,
                           none)
           | [bench_ops:ratio(lists:concat([Runner, " / plain Rust"]), title({Runner, prepared}),
                              "plain Rust", Samples, none)
              || Runner <- Runners]])}.

row({Runner, options} = Key, Mod) ->
    {title(Key), fun() -> made(fun() -> wasmtime:instantiate(Mod, #{runner => Runner}) end) end};
row({Runner, prepared} = Key, Mod) ->
    Template = bench_guest:must(prepare, wasmtime:prepare(Mod, #{runner => Runner})),
    {title(Key), fun() -> made(fun() -> wasmtime:instantiate(Template) end) end}.

title({Runner, How}) -> atom_to_list(Runner) ++ ", " ++ atom_to_list(How).

%% The end of the instance is not counted.
made(Fun) ->
    {Nanos, Made} = bench_stats:timed(Fun),
    ok = wasmtime:destroy(bench_guest:must(instantiate, Made)),
    Nanos.
