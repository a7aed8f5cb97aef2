%% Tables: read, set and grown from Erlang, and what is refused.
-module(table_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

with_tables(Fun) -> with_tables(#{}, Fun).

with_tables(Opts, Fun) ->
    Mod = wasmtime_test:mod(ref_tables, #{proposals => #{gc => true, function_references => true}}),
    Host = #{{"env", "host"} => fun(_, [X]) -> {ok, [X]} end},
    Inst = wasmtime_test:inst(Mod, maps:merge(Host, Opts)),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

refused(Kind, Result) -> ?assertMatch({_, ?WASMTIME_ERROR(table, Kind)}, {Kind, Result}).

t_size(_) ->
    with_tables(fun(Inst) ->
        ?assertEqual([{ok, 2}, {ok, 2}, {ok, 1}, {ok, 1}],
                     [wasmtime:table_size(Inst, Name) || Name <- ["funcs", <<"externs">>, ["poi", "nts"], "numbers"]])
    end).

%% A function moves from one element to another, and is called there.
t_functions(_) ->
    with_tables(fun(Inst) ->
        {ok, Double} = wasmtime:table_get(Inst, "funcs", 0),
        ?assertEqual({ok, null}, wasmtime:table_get(Inst, "funcs", 1)),
        ?assertEqual({ok, [10]}, wasmtime:call_ref(Inst, Double, [5])),
        {ok, Triple} = wasmtime:funcref(Inst, "triple"),
        ok = wasmtime:table_set(Inst, "funcs", 1, Double),
        ok = wasmtime:table_set(Inst, "funcs", 0, Triple),
        ?assertEqual({ok, [15]}, wasmtime:call(Inst, "call", [0, 5])),
        ?assertEqual({ok, [10]}, wasmtime:call(Inst, "call", [1, 5])),
        ok = wasmtime:table_set(Inst, "funcs", 1, null),
        ?assertMatch(?WASMTIME_TRAP(indirect_call_to_null), wasmtime:call(Inst, "call", [1, 5]))
    end).

%% Terms, objects and numbers.
t_references(_) ->
    with_tables(fun(Inst) ->
        {ok, Term} = wasmtime:externref(Inst, {x, 1}),
        ok = wasmtime:table_set(Inst, "externs", 1, Term),
        {ok, Back} = wasmtime:table_get(Inst, "externs", 1),
        ?assertEqual({ok, {x, 1}}, wasmtime:externref_data(Back)),
        {ok, [Seen]} = wasmtime:call(Inst, "extern", [1]),
        ?assertEqual({ok, {x, 1}}, wasmtime:externref_data(Seen)),
        {ok, Point} = wasmtime:struct_new(Inst, {table, "points"}, [9]),
        ok = wasmtime:table_set(Inst, "points", 0, Point),
        ?assertEqual({ok, [9]}, wasmtime:call(Inst, "x", [0])),
        ?assertEqual({ok, {i31, 3}}, wasmtime:table_get(Inst, "numbers", 0)),
        ok = wasmtime:table_set(Inst, "numbers", 0, {i31, -4}),
        ?assertEqual({ok, {i31, -4}}, wasmtime:table_get(Inst, "numbers", 0)),
        {ok, Func} = wasmtime:table_get(Inst, "funcs", 0),
        [refused(badarg, wasmtime:table_set(Inst, Name, 0, Bad))
         || {Name, Values} <- [{"funcs", [Term, Point, {i31, 1}, 1]}, {"externs", [Func, Point, a]},
                               {"points", [Term, {i31, 1}, make_ref()]}, {"numbers", [null, Point]}],
            Bad <- Values]
    end),
    with_tables(fun(A) -> with_tables(fun(B) ->
        {ok, Foreign} = wasmtime:table_get(A, "funcs", 0),
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance),
                     wasmtime:table_set(B, "funcs", 0, Foreign)),
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance),
                     wasmtime:table_grow(B, "funcs", 1, Foreign))
    end) end).

%% Both sides of the end, and indices from far away.
t_bounds(_) ->
    with_tables(fun(Inst) ->
        ?assertMatch({ok, _}, wasmtime:table_get(Inst, "funcs", 1)),
        [begin
             refused(table_out_of_bounds, wasmtime:table_get(Inst, "funcs", At)),
             refused(table_out_of_bounds, wasmtime:table_set(Inst, "funcs", At, null))
         end || At <- [2, 1 bsl 32, (1 bsl 64) - 1, 1 bsl 64, 1 bsl 200]],
        [begin
             refused(badarg, wasmtime:table_get(Inst, "funcs", At)),
             refused(badarg, wasmtime:table_set(Inst, "funcs", At, null)),
             refused(badarg, wasmtime:table_grow(Inst, "funcs", At))
         end || At <- [-1, 1.0, a, "0", null]]
    end).

%% Growth gives the size before, fills with the value, and stops at the table's own maximum.
t_grow(_) ->
    with_tables(fun(Inst) ->
        {ok, Double} = wasmtime:table_get(Inst, "funcs", 0),
        ?assertEqual({ok, 2}, wasmtime:table_grow(Inst, "funcs", 2, Double)),
        ?assertEqual({ok, 4}, wasmtime:table_grow(Inst, "funcs", 0)),
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, "size", [])),
        ?assertEqual({ok, [6]}, wasmtime:call(Inst, "call", [3, 3])),
        [refused(table_limit, wasmtime:table_grow(Inst, "funcs", N))
         || N <- [5, 1 bsl 32, (1 bsl 64) - 1, 1 bsl 100]],
        ?assertEqual({ok, 4}, wasmtime:table_grow(Inst, "funcs", 4)),
        refused(table_limit, wasmtime:table_grow(Inst, "funcs", 1)),
        ?assertEqual({ok, null}, wasmtime:table_get(Inst, "funcs", 7)),
        %% Without a null, a value must be given.
        refused(badarg, wasmtime:table_grow(Inst, "numbers", 1)),
        ?assertEqual({ok, 1}, wasmtime:table_grow(Inst, "numbers", 1, {i31, 6})),
        ?assertEqual({ok, {i31, 6}}, wasmtime:table_get(Inst, "numbers", 1)),
        refused(badarg, wasmtime:table_grow(Inst, "funcs", 0, {i31, 1}))
    end).

%% The instance's limit is told from the table's, and millions of elements are fine.
t_limit(_) ->
    with_tables(#{max_table_elements => 10}, fun(Inst) ->
        ?assertMatch(?WASMTIME_ERROR(limit, table_limit), wasmtime:table_grow(Inst, "externs", 9)),
        ?assertEqual({ok, 2}, wasmtime:table_grow(Inst, "externs", 8)),
        ?assertMatch(?WASMTIME_ERROR(limit, table_limit), wasmtime:table_grow(Inst, "externs", 1))
    end),
    with_tables(fun(Inst) ->
        {ok, Term} = wasmtime:externref(Inst, many),
        ?assertEqual({ok, 2}, wasmtime:table_grow(Inst, "externs", 2_000_000, Term)),
        {ok, Last} = wasmtime:table_get(Inst, "externs", 2_000_001),
        ?assertEqual({ok, many}, wasmtime:externref_data(Last)),
        %% 10,000,000 is the default.
        ?assertMatch(?WASMTIME_ERROR(limit, table_limit),
                     wasmtime:table_grow(Inst, "externs", 8_000_000))
    end).

t_refused(_) ->
    with_tables(fun(Inst) ->
        [begin
             refused(unknown_export, wasmtime:table_size(Inst, Name)),
             refused(unknown_export, wasmtime:table_get(Inst, Name, 0)),
             refused(unknown_export, wasmtime:table_set(Inst, Name, 0, null)),
             refused(unknown_export, wasmtime:table_grow(Inst, Name, 1))
         end || Name <- ["nothing", "memory", "double", ""]],
        [begin
             refused(badarg, wasmtime:table_size(Inst, Name)),
             refused(badarg, wasmtime:table_get(Inst, Name, 0)),
             refused(badarg, wasmtime:table_set(Inst, Name, 0, null)),
             refused(badarg, wasmtime:table_grow(Inst, Name, 1))
         end || Name <- [funcs, 1, [0], {}]]
    end),
    [begin
         ?assertError(badarg, wasmtime:table_size(Bad, "funcs")),
         ?assertError(badarg, wasmtime:table_get(Bad, "funcs", 0)),
         ?assertError(badarg, wasmtime:table_set(Bad, "funcs", 0, null)),
         ?assertError(badarg, wasmtime:table_grow(Bad, "funcs", 0))
     end || Bad <- [a, make_ref(), {wasmtime_instance, make_ref()}]].

%% Tables with 64-bit indices.
t_table64(_) ->
    Text = "(module (table (export \"t\") i64 1 externref))",
    Inst = wasmtime_test:inst({wat, Text}, #{}, #{proposals => #{memory64 => true}}),
    ?assertEqual({ok, 1}, wasmtime:table_grow(Inst, "t", 2)),
    ?assertEqual({ok, null}, wasmtime:table_get(Inst, "t", 2)),
    refused(table_out_of_bounds, wasmtime:table_get(Inst, "t", 1 bsl 40)),
    ?assertMatch(?WASMTIME_ERROR(limit, table_limit), wasmtime:table_grow(Inst, "t", 1 bsl 40)),
    ok = wasmtime:destroy(Inst).

%% A host function uses the tables of the guest that called it.
t_in_host_fun(_) ->
    Host = fun(Inst, [X]) ->
        {ok, Func} = wasmtime:table_get(Inst, "funcs", 0),
        {ok, Size} = wasmtime:table_grow(Inst, "funcs", 1, Func),
        {ok, [Y]} = wasmtime:call(Inst, "call", [Size, X]),
        {ok, [Y]}
    end,
    with_tables(#{{"env", "host"} => Host}, fun(Inst) ->
        ?assertEqual({ok, [22]}, wasmtime:call(Inst, "call_host", [11])),
        ?assertEqual({ok, 3}, wasmtime:table_size(Inst, "funcs"))
    end).

t_busy_and_destroyed(_) ->
    with_tables(fun(Inst) ->
        {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
        wasmtime_test:wait_until(fun() -> wasmtime:table_size(Inst, "funcs") =/= {ok, 2} end),
        Each = [fun() -> wasmtime:table_size(Inst, "funcs") end,
                fun() -> wasmtime:table_get(Inst, "funcs", 0) end,
                fun() -> wasmtime:table_set(Inst, "funcs", 0, null) end,
                fun() -> wasmtime:table_grow(Inst, "funcs", 1) end],
        [?assertMatch(?WASMTIME_ERROR(call, busy), Do()) || Do <- Each],
        ok = wasmtime:destroy(Inst),
        receive {Pid, _} -> ok end,
        [?assertMatch(?WASMTIME_ERROR(call, destroyed), Do()) || Do <- Each]
    end).
