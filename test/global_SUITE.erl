%% Globals: read and set from Erlang, bit by bit, and what is refused.
-module(global_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

with_globals(Fun) -> with_globals(fun(_, [X]) -> {ok, [X]} end, Fun).

with_globals(Host, Fun) ->
    Mod = wasmtime_test:mod(globals, #{proposals => #{gc => true, function_references => true}}),
    Inst = wasmtime_test:inst(Mod, #{{"env", "host"} => Host}),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

refused(Kind, Result) -> ?assertMatch({_, ?WASMTIME_ERROR(global, Kind)}, {Kind, Result}).

%% Each numeric type takes and gives what a parameter of it does.
t_numbers(_) ->
    V128 = list_to_binary(lists:seq(1, 16)),
    Max = (1 bsl 63) - 1,
    with_globals(fun(Inst) ->
        ?assertEqual([{ok, -1}, {ok, -1}, {ok, 0.5}, {ok, 0.5}, {ok, <<0:128>>}],
                     [wasmtime:global_get(Inst, Name) || Name <- ["i32", "i64", "f32", "f64", "v128"]]),
        [begin
             ?assertEqual({Name, Given, ok}, {Name, Given, wasmtime:global_set(Inst, Name, Given)}),
             ?assertEqual({Name, Given, {ok, Back}}, {Name, Given, wasmtime:global_get(Inst, Name)})
         end || {Name, Pairs} <- [{"i32", [{(1 bsl 32) - 1, -1}, {-(1 bsl 31), -(1 bsl 31)}]},
                                  {<<"i64">>, [{Max, Max}, {Max + 1, -Max - 1}]},
                                  {"f32", [{1, 1.0}, {neg_infinity, neg_infinity}]},
                                  {["f", <<"64">>], [{-0.0, -0.0}, {5.0e-324, 5.0e-324}]},
                                  {"v128", [{V128, V128}]}],
                {Given, Back} <- Pairs],
        [refused(badarg, wasmtime:global_set(Inst, Name, Bad))
         || {Name, Values} <- [{"i32", [1 bsl 32, -(1 bsl 31) - 1, 1.0, a, null]}, {"i64", [1 bsl 64]},
                               {"f32", [a, 1.0e39]}, {"f64", [null]}, {"v128", [<<>>, <<0:136>>, 1]}],
            Bad <- Values],
        ok = wasmtime:global_set(Inst, "i32", 7),
        ?assertEqual({ok, [7]}, wasmtime:call(Inst, "get_i32", []))
    end).

%% Exact bits of NaNs, both ways.
t_nan_bits(_) ->
    with_globals(fun(Inst) ->
        [begin
             ok = wasmtime:global_set(Inst, "f64", {f64, Bits}),
             ?assertEqual({ok, [Bits]}, signed(wasmtime:call(Inst, "bits64", []), 64)),
             ?assertEqual({ok, Given}, wasmtime:global_get(Inst, "f64"))
         end || {Bits, Given} <- [{16#7FF8000000000000, nan}, {16#FFF8000000000000, nan},
                                  {16#7FF8000000000001, {f64, 16#7FF8000000000001}},
                                  {16#7FF0000000000001, {f64, 16#7FF0000000000001}},
                                  {16#FFF4DEADBEEF0000, {f64, 16#FFF4DEADBEEF0000}},
                                  {16#7FF0000000000000, infinity}]],
        [begin
             ok = wasmtime:global_set(Inst, "f32", {f32, Bits}),
             ?assertEqual({ok, [Bits]}, signed(wasmtime:call(Inst, "bits32", []), 32)),
             ?assertEqual({ok, Given}, wasmtime:global_get(Inst, "f32"))
         end || {Bits, Given} <- [{16#7FC00000, nan}, {16#FFC00000, nan}, {16#7F800001, {f32, 16#7F800001}},
                                  {16#FFC00001, {f32, 16#FFC00001}}, {16#FF800000, neg_infinity}]],
        {ok, []} = wasmtime:call(Inst, "set_bits64", [16#7FF4000000000002]),
        ?assertEqual({ok, {f64, 16#7FF4000000000002}}, wasmtime:global_get(Inst, "f64"))
    end).

signed({ok, [N]}, Bits) -> {ok, [N band ((1 bsl Bits) - 1)]}.

%% References of each kind, also to one type.
t_references(_) ->
    with_globals(fun(Inst) ->
        [?assertEqual({Name, {ok, null}}, {Name, wasmtime:global_get(Inst, Name)})
         || Name <- ["extern", "func", "any", "point"]],
        {ok, Term} = wasmtime:externref(Inst, #{k => v}),
        ok = wasmtime:global_set(Inst, "extern", Term),
        {ok, Back} = wasmtime:global_get(Inst, "extern"),
        ?assertEqual({ok, #{k => v}}, wasmtime:externref_data(Back)),
        {ok, Func} = wasmtime:global_get(Inst, "const_func"),
        ok = wasmtime:global_set(Inst, "func", Func),
        {ok, Same} = wasmtime:global_get(Inst, "func"),
        ?assertEqual({ok, [-1]}, wasmtime:call_ref(Inst, Same, [])),
        ok = wasmtime:global_set(Inst, "any", {i31, -5}),
        ?assertEqual({ok, {i31, -5}}, wasmtime:global_get(Inst, "any")),
        {ok, Point} = wasmtime:struct_new(Inst, {global, "point"}, [3]),
        [ok = wasmtime:global_set(Inst, Name, Point) || Name <- ["point", "any"]],
        {ok, Found} = wasmtime:global_get(Inst, "any"),
        ?assertEqual({ok, 3}, wasmtime:struct_get(Found, 0)),
        ok = wasmtime:global_set(Inst, "extern", null),
        ?assertEqual({ok, null}, wasmtime:global_get(Inst, "extern")),
        [refused(badarg, wasmtime:global_set(Inst, Name, Bad))
         || {Name, Values} <- [{"extern", [{i31, 1}, Func, Point, 1]}, {"func", [Term, Point]},
                               {"any", [Term, Func, make_ref()]}, {"some", [null, Point, {i31, 1 bsl 31}]},
                               {"point", [{i31, 1}]}],
            Bad <- Values],
        ok = wasmtime:global_set(Inst, "some", {i31, 8}),
        ?assertEqual({ok, {i31, 8}}, wasmtime:global_get(Inst, "some"))
    end),
    with_globals(fun(A) -> with_globals(fun(B) ->
        {ok, Foreign} = wasmtime:externref(A, foreign),
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance),
                     wasmtime:global_set(B, "extern", Foreign))
    end) end).

t_refused(_) ->
    with_globals(fun(Inst) ->
        ?assertEqual({ok, 42}, wasmtime:global_get(Inst, "const")),
        refused(immutable, wasmtime:global_set(Inst, "const", 1)),
        refused(badarg, wasmtime:global_set(Inst, "const", a)),
        [begin
             refused(unknown_export, wasmtime:global_get(Inst, Name)),
             refused(unknown_export, wasmtime:global_set(Inst, Name, 1))
         end || Name <- ["nothing", "memory", "get_i32", ""]],
        [begin
             refused(badarg, wasmtime:global_get(Inst, Name)),
             refused(badarg, wasmtime:global_set(Inst, Name, 1))
         end || Name <- [i32, 1, [0], <<"i32", 0>>, {}]]
    end),
    [begin
         ?assertError(badarg, wasmtime:global_get(Bad, "i32")),
         ?assertError(badarg, wasmtime:global_set(Bad, "i32", 1))
     end || Bad <- [a, make_ref(), {wasmtime_instance, make_ref()}]].

%% A host function reads and sets the globals of the guest that called it.
t_in_host_fun(_) ->
    Host = fun(Inst, [X]) ->
        {ok, Old} = wasmtime:global_get(Inst, "i32"),
        ok = wasmtime:global_set(Inst, "i32", X),
        {ok, [X]} = wasmtime:call(Inst, "get_i32", []),
        {ok, [Old]}
    end,
    with_globals(Host, fun(Inst) ->
        ?assertEqual({ok, [-1]}, wasmtime:call(Inst, "call_host", [5])),
        ?assertEqual({ok, [5]}, wasmtime:call(Inst, "call_host", [6])),
        ?assertEqual({ok, 6}, wasmtime:global_get(Inst, "i32"))
    end).

%% While the guest runs it is busy; after its end it is gone.
t_busy_and_destroyed(_) ->
    with_globals(fun(Inst) ->
        {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
        Busy = fun() -> wasmtime:global_get(Inst, "i32") =/= {ok, -1} end,
        wasmtime_test:wait_until(Busy),
        ?assertMatch(?WASMTIME_ERROR(call, busy), wasmtime:global_get(Inst, "i32")),
        ?assertMatch(?WASMTIME_ERROR(call, busy), wasmtime:global_set(Inst, "i32", 1)),
        ok = wasmtime:destroy(Inst),
        receive {Pid, _} -> ok end,
        ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:global_get(Inst, "i32")),
        ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:global_set(Inst, "i32", 1))
    end).
