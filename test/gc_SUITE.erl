%% Structs and arrays: made, read and changed from Erlang, and seen so by the guest.
-module(gc_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(NODE, {global, "a_node"}).
-define(INNER, {table, "inners"}).
-define(OUTER, {param, "sum", 1}).

with_gc(Fun) -> with_gc(#{}, Fun).

with_gc(Opts, Fun) ->
    Mod = wasmtime_test:mod(gc, #{proposals => #{gc => true, function_references => true}}),
    Make = #{{"env", "make"} => fun(Inst, [null]) -> {ok, [outer(Inst, 5, 6)]} end},
    Inst = wasmtime_test:inst(Mod, maps:merge(Make, Opts)),
    try Fun(Inst) after wasmtime:destroy(Inst) end.

outer(Inst, A, B) ->
    Inner = fun(N) -> ok(wasmtime:struct_new(Inst, {field, ?OUTER, 0}, [N])) end,
    List = ok(wasmtime:array_new(Inst, {field, ?OUTER, 1}, [Inner(B), null])),
    ok(wasmtime:struct_new(Inst, ?OUTER, [Inner(A), List])).

node_of(Inst) ->
    ok(wasmtime:struct_new(Inst, ?NODE, [1, 2, 3, 4, 5.0, 6.0, <<7:128>>, null, null, null, 8])).

ok(Result) -> {ok, Value} = Result, Value.

refused(Kind, Result) -> ?assertMatch({_, ?WASMTIME_ERROR(ref, Kind)}, {Kind, Result}).

message({error, #{message := Message}}, Part) ->
    ?assertMatch({_, {_, _}}, {Message, binary:match(Message, Part)}).

%% ---- structs --------------------------------------------------------------------------------

%% A field of each type keeps what it is given, at both ends of its range.
t_fields(_) ->
    V128 = list_to_binary(lists:seq(1, 16)),
    with_gc(fun(Inst) ->
        Node = node_of(Inst),
        Max = (1 bsl 63) - 1,
        [begin
             ok = wasmtime:struct_set(Node, At, Given),
             ?assertEqual({At, Given, {ok, Back}}, {At, Given, wasmtime:struct_get(Node, At)})
         end || {At, Values} <- [{0, [{0, 0}, {255, 255}, {-1, 255}, {-128, 128}]},
                                 {1, [{65535, 65535}, {-32768, 32768}, {-1, 65535}]},
                                 {2, [{1 bsl 31, -(1 bsl 31)}, {-1, -1}]},
                                 {3, [{Max, Max}, {-Max - 1, -Max - 1}, {1 bsl 63, -Max - 1}]},
                                 {4, [{1.5, 1.5}, {nan, nan}, {{f32, 16#7FC00001}, {f32, 16#7FC00001}}]},
                                 {5, [{-0.0, -0.0}, {{f64, 16#7FF8000000000001}, {f64, 16#7FF8000000000001}}]},
                                 {6, [{V128, V128}]}, {7, [{null, null}]}, {9, [{null, null}]}],
                {Given, Back} <- Values],
        [refused(badarg, wasmtime:struct_set(Node, At, Bad))
         || {At, Values} <- [{0, [256, -129, 1.0, a, null]}, {1, [65536, -32769]}, {2, [1 bsl 32]},
                             {3, [1 bsl 64]}, {4, [a, 1.0e39]}, {5, [<<>>]}, {6, [<<0:120>>]},
                             {7, [{i31, 1}, Node, 1]}, {8, [Node]}, {9, [{i31, 1}, undefined]}],
            Bad <- Values]
    end).

%% References inside structs: terms, functions, other structs.
t_reference_fields(_) ->
    with_gc(fun(Inst) ->
        [A, B] = [node_of(Inst), node_of(Inst)],
        Term = ok(wasmtime:externref(Inst, {a, term})),
        ok = wasmtime:struct_set(A, 7, Term),
        ?assertEqual({ok, {a, term}}, wasmtime:externref_data(ok(wasmtime:struct_get(A, 7)))),
        Double = ok(wasmtime:funcref(Inst, "double")),
        ok = wasmtime:struct_set(A, 8, Double),
        ?assertEqual({ok, [14]}, wasmtime:call_ref(Inst, ok(wasmtime:struct_get(A, 8)), [7])),
        ok = wasmtime:struct_set(A, 9, B),
        ok = wasmtime:struct_set(B, 2, 99),
        ?assertEqual({ok, [99]}, wasmtime:call(Inst, "follow", [A])),
        %% A function of another type is no value of this one.
        Sum = ok(wasmtime:funcref(Inst, "sum")),
        refused(badarg, wasmtime:struct_set(A, 8, Sum))
    end).

%% Fields that are not there, constant ones, and objects that are no structs.
t_struct_refused(_) ->
    with_gc(fun(Inst) ->
        Node = node_of(Inst),
        ?assertEqual({ok, 8}, wasmtime:struct_get(Node, 10)),
        refused(immutable, wasmtime:struct_set(Node, 10, 1)),
        [refused(out_of_bounds, wasmtime:struct_get(Node, At)) || At <- [11, 1 bsl 32, 1 bsl 80]],
        [refused(out_of_bounds, wasmtime:struct_set(Node, At, 1)) || At <- [11, 1 bsl 80]],
        [refused(badarg, wasmtime:struct_get(Node, At)) || At <- [-1, 1.0, a, "0"]],
        Bytes = ok(wasmtime:array_new(Inst, {param, "bytes", 1}, <<1>>)),
        refused(badarg, wasmtime:struct_get(Bytes, 0)),
        refused(badarg, wasmtime:struct_set(Bytes, 0, 1)),
        [begin
             ?assertError(badarg, wasmtime:struct_get(Bad, 0)),
             ?assertError(badarg, wasmtime:struct_get(Bad, -1)),
             ?assertError(badarg, wasmtime:struct_set(Bad, 0, 1))
         end || Bad <- reference_SUITE:not_refs()]
    end).

%% ---- arrays ---------------------------------------------------------------------------------

%% From a list, a count with a value, and bytes.
t_array_new(_) ->
    with_gc(fun(Inst) ->
        Doubles = {param, "doubles", 1},
        A = ok(wasmtime:array_new(Inst, Doubles, [1.5, 2, infinity])),
        ?assertEqual({ok, 3}, wasmtime:array_len(A)),
        ?assertEqual([{ok, 1.5}, {ok, 2.0}, {ok, infinity}],
                     [wasmtime:array_get(A, I) || I <- [0, 1, 2]]),
        ?assertEqual({ok, [1.5]}, wasmtime:call(Inst, "doubles", [A])),
        B = ok(wasmtime:array_new(Inst, Doubles, {100_000, 2.5})),
        ?assertEqual({ok, 100_000}, wasmtime:array_len(B)),
        ?assertEqual({ok, 2.5}, wasmtime:array_get(B, 99_999)),
        [?assertEqual({ok, 0}, wasmtime:array_len(ok(wasmtime:array_new(Inst, Doubles, None))))
         || None <- [[], {0, 1.0}]],
        C = ok(wasmtime:array_new(Inst, {param, "bytes", 1}, <<200, 1>>)),
        ?assertEqual([{ok, 200}, {ok, 1}], [wasmtime:array_get(C, I) || I <- [0, 1]]),
        ?assertEqual({ok, [-56]}, wasmtime:call(Inst, "bytes", [C])),
        D = ok(wasmtime:array_new(Inst, {param, "words", 1}, [-2, 65535])),
        ?assertEqual([{ok, 65534}, {ok, 65535}], [wasmtime:array_get(D, I) || I <- [0, 1]]),
        ?assertEqual({ok, [-2]}, wasmtime:call(Inst, "words", [D])),
        %% Bytes are for bytes.
        [refused(badarg, wasmtime:array_new(Inst, Doubles, Bad))
         || Bad <- [<<1>>, [1.0, a], {1, a}, {-1, 1.0}, {1 bsl 32, 1.0}, {a, 1.0}, a, {1}, [1 | 2]]],
        message(wasmtime:array_new(Inst, Doubles, [1.0, a]), <<"value 2">>)
    end).

t_array_set(_) ->
    with_gc(fun(Inst) ->
        A = ok(wasmtime:array_new(Inst, {param, "words", 1}, {3, 0})),
        ok = wasmtime:array_set(A, 2, 65535),
        ?assertEqual({ok, 65535}, wasmtime:array_get(A, 2)),
        [refused(badarg, wasmtime:array_set(A, 0, Bad)) || Bad <- [65536, -32769, a, null]],
        [refused(out_of_bounds, wasmtime:array_set(A, At, 1)) || At <- [3, 1 bsl 32, 1 bsl 80]],
        [refused(out_of_bounds, wasmtime:array_get(A, At)) || At <- [3, 1 bsl 32, 1 bsl 80]],
        [refused(badarg, wasmtime:array_get(A, At)) || At <- [-1, a, 1.0]],
        Fixed = ok(wasmtime:array_new(Inst, {param, "fixed", 1}, [7])),
        ?assertEqual({ok, [7]}, wasmtime:call(Inst, "fixed", [Fixed])),
        refused(immutable, wasmtime:array_set(Fixed, 0, 1)),
        Node = node_of(Inst),
        refused(badarg, wasmtime:array_get(Node, 0)),
        refused(badarg, wasmtime:array_set(Node, 0, 1)),
        refused(badarg, wasmtime:array_len(Node)),
        refused(badarg, wasmtime:array_len(ok(wasmtime:externref(Inst, a)))),
        [begin
             ?assertError(badarg, wasmtime:array_len(Bad)),
             ?assertError(badarg, wasmtime:array_get(Bad, 0)),
             ?assertError(badarg, wasmtime:array_set(Bad, 0, 1))
         end || Bad <- reference_SUITE:not_refs()]
    end).

%% ---- types ----------------------------------------------------------------------------------

%% A type is named by its use: in parameters, results, globals, tables, other types, imports, objects.
t_type_names(_) ->
    with_gc(fun(Inst) ->
        ?assertEqual({ok, [11]}, wasmtime:call(Inst, "sum", [outer(Inst, 5, 6)])),
        ?assertEqual({ok, [5]}, wasmtime:call(Inst, "host_sum", [])),
        Inner = ok(wasmtime:struct_new(Inst, ?INNER, [1])),
        Again = ok(wasmtime:struct_new(Inst, Inner, [2])),
        Import = {"env", <<"make">>},
        List = ok(wasmtime:array_new(Inst, {param, Import, 1}, [Inner, Again])),
        Outer = ok(wasmtime:struct_new(Inst, {result, Import, 1}, [Again, List])),
        ?assertEqual({ok, [3]}, wasmtime:call(Inst, "sum", [Outer])),
        Deep = {element, {field, {result, Import, 1}, 1}},
        ?assertMatch({ok, _}, wasmtime:struct_new(Inst, Deep, [3])),
        ?assertEqual(#{kind => struct, fields => [<<"i32">>]}, wasmtime:ref_info(Inner))
    end).

%% What names no type of that sort is refused; a name from outside never raises.
t_bad_type_names(_) ->
    with_gc(fun(Inst) ->
        Node = node_of(Inst),
        Bytes = ok(wasmtime:array_new(Inst, {param, "bytes", 1}, <<>>)),
        Deep = lists:foldl(fun(_, T) -> {element, T} end, ?NODE, lists:seq(1, 100_000)),
        Bad = [a, 1, null, {}, {param}, {param, "sum"}, {param, "sum", 0}, {param, "sum", 2},
               {param, "sum", -1}, {param, "sum", a}, {param, sum, 1}, {param, <<0>>, 1},
               {result, "sum", 1}, {param, "nothing", 1}, {param, {"env", "nothing"}, 1},
               {param, {"env"}, 1}, {global, "nothing"}, {global, "inners"}, {table, "a_node"},
               {table, 7}, {field, ?NODE, 11}, {field, ?NODE, 0}, {field, ?NODE, 2},
               {field, {param, "bytes", 1}, 0}, {element, ?NODE}, {memory, "x"}, make_ref(), self(), Deep,
               {param, "sum", 1 bsl 64}, {field, ?NODE, 7}, {field, ?NODE, 8}, #{}, ok(wasmtime:externref(Inst, a))],
        [refused(badarg, wasmtime:struct_new(Inst, Name, [])) || Name <- [Bytes | Bad]],
        [refused(badarg, wasmtime:array_new(Inst, Name, [])) || Name <- [Node | Bad]],
        [?assertError(badarg, wasmtime:struct_new(None, ?NODE, [])) || None <- [Node, a, make_ref()]],
        [?assertError(badarg, wasmtime:array_new(None, ?NODE, [])) || None <- [Node, a, make_ref()]]
    end).

%% As many fields as there are, each of its type.
t_struct_new_refused(_) ->
    with_gc(fun(Inst) ->
        [refused(badarity, wasmtime:struct_new(Inst, ?INNER, Fields)) || Fields <- [[], [1, 2]]],
        [refused(badarg, wasmtime:struct_new(Inst, ?INNER, Fields)) || Fields <- [[a], [null], a, [1 | 2], {1}]],
        message(wasmtime:struct_new(Inst, ?OUTER, [null, null]), <<"value 1">>),
        Inner = ok(wasmtime:struct_new(Inst, ?INNER, [1])),
        refused(badarg, wasmtime:struct_new(Inst, ?OUTER, [Inner, Inner])),
        message(wasmtime:struct_new(Inst, ?OUTER, [Inner, Inner]), <<"value 2">>)
    end).

%% A subtype is taken where its supertype is wanted, and not the other way round.
t_subtypes(_) ->
    with_gc(fun(Inst) ->
        Sub = ok(wasmtime:struct_new(Inst, {param, "sub", 1}, [4, 5])),
        Base = ok(wasmtime:struct_new(Inst, {param, "base", 1}, [6])),
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, "base", [Sub])),
        ?assertEqual({ok, [5]}, wasmtime:call(Inst, "sub", [Sub])),
        ?assertEqual({ok, [6]}, wasmtime:call(Inst, "base", [Base])),
        ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:call(Inst, "sub", [Base]))
    end).

%% An exported function is passed as a reference, where its type fits.
t_funcref(_) ->
    with_gc(fun(Inst) ->
        Double = ok(wasmtime:funcref(Inst, "double")),
        ?assertEqual({ok, [10]}, wasmtime:call(Inst, "apply", [Double, 5])),
        ?assertEqual({ok, [8]}, wasmtime:call_ref(Inst, Double, [4])),
        Sum = ok(wasmtime:funcref(Inst, <<"sum">>)),
        ?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:call(Inst, "apply", [Sum, 5])),
        [?assertMatch(?WASMTIME_ERROR(call, unknown_export), wasmtime:funcref(Inst, Name))
         || Name <- ["nothing", "a_node", ""]],
        [?assertMatch(?WASMTIME_ERROR(call, badarg), wasmtime:funcref(Inst, Name))
         || Name <- [a, 1, [0]]],
        [?assertError(badarg, wasmtime:funcref(Bad, "double")) || Bad <- [a, Double]]
    end).

%% ---- the heap -------------------------------------------------------------------------------

%% A heap that may not grow says which limit; what was let go makes room.
t_heap_limit(_) ->
    Limit = 1 bsl 20,
    with_gc(#{memory_limit => Limit}, fun(Inst) ->
        Big = fun() -> wasmtime:array_new(Inst, {param, "bytes", 1}, {Limit div 2, 0}) end,
        Kept = ok(Big()),
        ?assertMatch(?WASMTIME_ERROR(limit, memory_limit), Big()),
        ?assertMatch(?WASMTIME_ERROR(limit, memory_limit),
                     wasmtime:array_new(Inst, {param, "bytes", 1}, {Limit, 0})),
        ?assertEqual({ok, Limit div 2}, wasmtime:array_len(Kept)),
        ?assertMatch({ok, _}, wasmtime:struct_new(Inst, ?INNER, [1]))
    end),
    with_gc(#{memory_limit => Limit}, fun(Inst) ->
        [wasmtime_test:in_process(fun() ->
             ok(wasmtime:array_new(Inst, {param, "bytes", 1}, {Limit div 2, 0})), ok
         end) || _ <- lists:seq(1, 20)],
        ok = wasmtime:gc(Inst)
    end).

%% The heap counts to the sum of all memories.
t_total_limit(_) ->
    with_gc(#{total_memory_limit => 1 bsl 20}, fun(Inst) ->
        ?assertMatch(?WASMTIME_ERROR(limit, memory_limit),
                     wasmtime:array_new(Inst, {param, "bytes", 1}, {1 bsl 20, 0}))
    end).

%% No heap holds an array of 2^32 - 1 elements of eight bytes.
t_too_large(_) ->
    with_gc(fun(Inst) ->
        ?assertMatch(?WASMTIME_TRAP(allocation_too_large),
                     wasmtime:array_new(Inst, {param, "doubles", 1}, {16#FFFFFFFF, 0.0}))
    end).

%% A list of a hundred thousand structs is let go without a deep stack.
t_long_list(_) ->
    with_gc(fun(Inst) ->
        wasmtime_test:in_process(fun() ->
            lists:foldl(fun(_, Next) ->
                ok(wasmtime:struct_new(Inst, ?NODE, [1, 2, 3, 4, 5.0, 6.0, <<7:128>>, null, null, Next, 8]))
            end, null, lists:seq(1, wasmtime_test:rounds(10_000, 100_000, 1_000_000))),
            ok
        end),
        _ = wasmtime_test:settled(),
        ok = wasmtime:gc(Inst)
    end).

%% Objects go with their instance.
t_destroyed(_) ->
    Node = wasmtime_test:in_process(fun() -> with_gc(fun node_of/1) end),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:struct_get(Node, 0)),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:struct_set(Node, 0, 1)).

%% An object of another instance fits nowhere, not even as the name of a type.
t_wrong_instance(_) ->
    with_gc(fun(A) -> with_gc(fun(B) ->
        [NodeA, NodeB] = [node_of(A), node_of(B)],
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance), wasmtime:struct_set(NodeA, 9, NodeB)),
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance), wasmtime:struct_new(B, NodeA, [])),
        Inner = ok(wasmtime:struct_new(A, ?INNER, [1])),
        List = {param, {"env", "make"}, 1},
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance), wasmtime:array_new(B, List, [null, Inner])),
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance), wasmtime:array_new(B, List, {3, Inner}))
    end) end).
