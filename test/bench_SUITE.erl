%% The benchmarks of single operations work: each gives its figures, in very short runs.
%% Rule: no figure is judged here; a busy machine must not fail a test.
-module(bench_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

-define(RUNNERS, [thread, scheduler]).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% The benchmarks are compiled here: they are no part of the application.
init_per_suite(Config) ->
    Dir = wasmtime_test:temp(Config, "bench"),
    Sources = filelib:wildcard(filename:join([wasmtime_test:root(), "bench", "*.erl"])),
    [_ | _] = Sources,
    true = code:add_patha(Dir),
    Behaviours = [Path || Path <- Sources, filename:basename(Path) =:= "bench_ops.erl"],
    lists:foreach(fun(Path) ->
        {ok, _} = compile:file(Path, [{outdir, Dir}, report, warnings_as_errors])
    end, Behaviours ++ (Sources -- Behaviours)),
    [{floor, floor()} | Config].

end_per_suite(_) -> ok.

%% Where cargo left the floor program, if it was built.
floor() ->
    Target = os:getenv("CARGO_TARGET_DIR", filename:join(wasmtime_test:root(), "target")),
    Program = filename:join([Target, "release", "wasmtime-floor"]),
    case filelib:is_regular(Program) of
        true -> Program;
        false -> none
    end.

%% ---- operations -----------------------------------------------------------------------------

t_instantiate(Config) ->
    {Titles, _} = measured(instantiate, Config),
    ?assertEqual([], ["thread, options", "thread, prepared", "scheduler, options",
                      "scheduler, prepared"] -- Titles).

t_call(Config) ->
    {Titles, Figures} = measured(call, Config),
    ?assertEqual([], ["thread", "scheduler"] -- Titles),
    ?assert(lists:member("thread / scheduler", Figures)).

t_host_call(Config) ->
    {Titles, Figures} = measured(host_call, Config),
    ?assertEqual(4, length(Titles)),
    ?assertEqual(["thread / scheduler, 1 caller", "thread / scheduler, 14 callers"], Figures).

%% Two runners, two places, two directions, two sizes.
t_memory(Config) ->
    {Titles, Figures} = measured(memory, Config),
    ?assertEqual(16, length(Titles)),
    ?assertEqual(8, length(Figures)).

t_stream(Config) ->
    {Titles, Figures} = measured(stream, Config),
    ?assertEqual(4, length(Titles)),
    ?assertEqual(2, length(Figures)).

t_cycle(Config) ->
    {Titles, Figures} = measured(cycle, Config),
    ?assertEqual([], ["thread", "scheduler"] -- Titles),
    ?assert(lists:member("scheduler, p50", Figures)).

%% Two runners, with a pool and without.
t_pool(Config) ->
    {Titles, Figures} = measured(pool, Config),
    ?assertEqual(4, length(Titles)),
    ?assertEqual(["thread, a pool's part", "scheduler, a pool's part"], Figures).

t_idle(Config) ->
    {[], Figures} = measured(idle, Config),
    ?assertEqual(6, length(Figures)).

%% Two runners, two sorts of call, full and empty.
t_mailbox(Config) ->
    {Titles, Figures} = measured(mailbox, Config),
    ?assertEqual(8, length(Titles)),
    ?assertEqual(4, length(Figures)).

t_fairness(Config) ->
    Online = erlang:system_info(schedulers_online),
    {Titles, Figures} = measured(fairness, Config),
    ?assertEqual(6, length(Titles)),
    ?assertEqual(4, length(Figures)),
    ?assertEqual(Online, erlang:system_info(schedulers_online)).

t_deadline(Config) ->
    {Titles, Figures} = measured(deadline, Config),
    ?assertEqual(["thread", "scheduler"], Titles),
    ?assertEqual(2, length(Figures)).

%% Each operation has a case here.
t_all_operations(_) ->
    Cases = [list_to_atom("t_" ++ atom_to_list(Operation)) || Operation <- ops_bench:operations()],
    ?assertEqual([], Cases -- wasmtime_test:cases(?MODULE)).

%% One runner alone can be measured: ratios to the other one are left out.
t_one_runner(Config) ->
    Of = fun(Runner) ->
        Result = ops_bench:run(call, (context(Config))#{runners := [Runner], floor := none}),
        {[Title || {Title, _} <- maps:get(samples, Result)], maps:get(figures, Result)}
    end,
    ?assertEqual({["thread"], []}, Of(thread)),
    ?assertEqual({["scheduler"], []}, Of(scheduler)).

%% What plain Rust needs is measured when it was built, and only then.
t_floor(Config) ->
    {Titles, _} = measured(cycle, Config),
    Plain = ["plain Rust", "guest core in Rust"],
    Expected = case proplists:get_value(floor, Config) of none -> []; _ -> Plain end,
    ?assertEqual(Expected, [Title || Title <- Titles, lists:member(Title, Plain)]).

%% Titles of samples and figures, after a look at each: times are positive, figures are numbers,
%% both are printed, and nothing is left in the mailbox.
measured(Operation, Config) ->
    #{samples := Samples, figures := Figures} = Result = with_floor(Operation, Config),
    [?assertMatch({_, [_ | _]}, Row) || Row <- Samples],
    [?assert(Nanos >= 0) || {_, Row} <- Samples, Nanos <- Row],
    [?assert(is_number(Value)) || {_, Value, _, _} <- Figures],
    Text = unicode:characters_to_binary(bench_ops:markdown(Operation, Result)),
    Titles = [Title || {Title, _} <- Samples],
    Names = [Name || {Name, _, _, _} <- Figures],
    [?assertMatch({_, _}, binary:match(Text, iolist_to_binary(Title))) || Title <- Titles ++ Names],
    ?assertEqual([], wasmtime_test:mailbox()),
    {Titles, Names}.

with_floor(Operation, Config) ->
    #{floor := Floor} = Context = context(Config),
    try ops_bench:run(Operation, Context)
    after Floor =:= none orelse bench_floor:close(Floor)
    end.

context(Config) ->
    Floor = case proplists:get_value(floor, Config) of
        none -> none;
        Program -> bench_floor:open_ops(Program)
    end,
    #{runners => ?RUNNERS, size => ops_bench:sizes(tiny), floor => Floor}.

%% ---- pictures -------------------------------------------------------------------------------

%% Both kinds of chart are well-formed XML that shows every title, escaped where needed.
t_pictures(_) ->
    Bars = bench_svg:bars(#{title => "a < b & c", axis => "ms", legend => ["one", "two"],
                            plain => "other", rows => [{"parts", [1, 0.5], "1.5 ms"},
                                                       {"whole", {plain, 2.25}, "2.25 ms"}]}),
    shows(["a < b & c", "ms", "one", "two", "other", "parts", "whole", "2.25 ms"], Bars),
    Lines = bench_svg:lines(#{title => "lines", x => "callers", y => "requests/s",
                              rows => [{"first", [{1, 10.0}, {28, 995.5}]}, {"second", [{4, 0}]}]}),
    shows(["lines", "callers", "requests/s", "first", "second", "28", "1000"], Lines).

%% A line of one point, and points that are all 0, are drawn, too.
t_smallest_pictures(_) ->
    Lines = bench_svg:lines(#{title => "t", x => "x", y => "y", rows => [{"only", [{1, 0}]}]}),
    shows(["only"], Lines),
    Bars = bench_svg:bars(#{title => "t", axis => "a", legend => [], plain => "p",
                            rows => [{"none", {plain, 0}, "0"}]}),
    shows(["none"], Bars).

shows(Texts, Svg) ->
    Event = fun({characters, Text}, _, Seen) -> [Text | Seen]; (_, _, Seen) -> Seen end,
    {ok, Seen, _} = xmerl_sax_parser:stream(iolist_to_binary(Svg),
                                            [{event_fun, Event}, {event_state, []}]),
    ?assertEqual([], Texts -- Seen).
