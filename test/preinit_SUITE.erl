%% Pre-initialization: what a snapshot carries, leaves out, and refuses.
-module(preinit_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [source/1, inst/2, mod/2]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

preinit(Name, Init) -> preinit(Name, #{}, Init).

preinit(Name, Opts, Init) -> wasmtime_test:preinit(source(Name), Opts, Init).

%% An instance of the snapshot.
started(Snapshot) -> inst(mod(Snapshot, #{}), #{}).

snapshot(Name, Opts, Init) ->
    {ok, Wasm} = preinit(Name, Opts, Init),
    started(Wasm).

globals(Inst) -> wasmtime:call(Inst, <<"get">>, []).

names(Wasm) -> [Name || {Name, _} <- wasmtime:exports(mod(Wasm, #{}))].

%% ---- carried --------------------------------------------------------------------------------

%% Every mutable global, bit by bit.
t_globals(_) ->
    Values = [-5, 1 bsl 40, {f32, 16#7FC12345}, {f64, 16#FFF0000000000001},
              <<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16>>],
    Plain = inst(preinit, #{}),
    {ok, []} = wasmtime:call(Plain, <<"set">>, Values),
    Inst = snapshot(preinit, #{}, [{<<"set">>, Values}]),
    ?assertEqual(globals(Plain), globals(Inst)),
    {ok, [-5, 1099511627776, _, _, <<1, _/binary>>]} = globals(Inst).

%% Memory, its growth and its zeros.
t_memory(_) ->
    Inst = snapshot(preinit, #{}, [{"grow", [3]}, {"store", [200_000, 77]}, {"store", [8, -1]}]),
    ?assertEqual({ok, {4, 4 * 65536}}, wasmtime:memory_size(Inst)),
    ?assertEqual({ok, [77]}, wasmtime:call(Inst, <<"load">>, [200_000])),
    ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"load">>, [8])),
    ?assertEqual({ok, <<0:800>>}, wasmtime:read_memory(Inst, 1000, 100)).

%% A value that was set and set back to zero is zero.
t_zero_again(_) ->
    Inst = snapshot(memory, #{}, [{"store", [16, 0]}, {"store", [20_000, 5]}, {"store", [20_000, 0]}]),
    ?assertEqual({ok, <<0, "mage">>}, wasmtime:read_memory(Inst, 16, 5)),
    ?assertEqual({ok, <<0>>}, wasmtime:read_memory(Inst, 20_000, 1)).

%% Tables that the init changed, and segments that it dropped.
t_tables(_) ->
    Inst = snapshot(preinit_tables, #{}, [<<"init">>]),
    [?assertEqual({I, Result}, {I, wasmtime:call(Inst, <<"call">>, [I])})
     || {I, Result} <- [{0, {ok, [2]}}, {3, {ok, [2]}}]],
    ?assertMatch(?WASMTIME_TRAP(indirect_call_to_null), wasmtime:call(Inst, <<"call">>, [1])),
    ?assertEqual({ok, <<"bytes">>}, wasmtime:read_memory(Inst, 0, 5)),
    ?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds), wasmtime:call(Inst, <<"init_bytes">>, [])),
    ?assertMatch(?WASMTIME_TRAP(table_out_of_bounds), wasmtime:call(Inst, <<"init_extra">>, [])).

%% A function that the host gave is, in a table, the import that it came by.
t_import_in_table(_) ->
    Imports = fun(By) -> #{{"env", "one"} => fun(_, [X]) -> {ok, [X * By]} end} end,
    {ok, Wasm} = preinit(preinit_import_ref, Imports(2), ["init"]),
    Inst = inst(mod(Wasm, #{}), Imports(3)),
    ?assertEqual({ok, [15]}, wasmtime:call(Inst, <<"call">>, [5])).

%% A module that has such instructions and does not run them keeps its segments.
t_segments_kept(_) ->
    Inst = snapshot(preinit_tables, #{}, [{<<"call">>, [0]}]),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"call">>, [0])),
    ?assertEqual({ok, []}, wasmtime:call(Inst, <<"init_bytes">>, [])),
    ?assertEqual({ok, []}, wasmtime:call(Inst, <<"init_extra">>, [])),
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"call">>, [0])).

%% What other toolchains write: each proposal in the init run, in the snapshot, and in its image.
t_proposals(_) ->
    [begin
         Opts = #{proposals => maps:from_keys(Proposals, true)},
         {ok, Wasm} = wasmtime_test:preinit({wat, ["(module ", Text, ")"]}, #{compile => Opts}, [{"init", [7]}]),
         Inst = inst(mod(Wasm, Opts), #{}),
         ?assertEqual({Proposals, {ok, [Expected]}}, {Proposals, wasmtime:call(Inst, "get", [])}),
         ok = wasmtime:destroy(Inst)
     end || {Proposals, Text, Expected} <- proposals()].

proposals() ->
    [{[custom_page_sizes],
      "(memory 100 300 (pagesize 1)) (data (i32.const 98) \"ab\")"
      " (func (export \"init\") (param i32) (drop (memory.grow (local.get 0)))"
      "  (i32.store8 (i32.const 106) (local.get 0)))"
      " (func (export \"get\") (result i32) (i32.add (i32.mul (memory.size) (i32.const 1000))"
      "  (i32.add (i32.load8_u (i32.const 99)) (i32.load8_u (i32.const 106)))))", 107_000 + $b + 7},
     {[memory64, multi_memory],
      "(memory 1) (memory $w i64 0 2)"
      " (func (export \"init\") (param i32) (drop (memory.grow $w (i64.const 1)))"
      "  (i64.store $w (i64.const 65528) (i64.extend_i32_u (local.get 0))))"
      " (func (export \"get\") (result i64) (i64.load $w (i64.const 65528)))", 7},
     {[threads],
      "(memory 1) (func (export \"init\") (param i32)"
      "  (drop (i32.atomic.rmw.add (i32.const 8) (local.get 0))))"
      " (func (export \"get\") (result i32) (i32.atomic.rmw.add (i32.const 8) (i32.const 1)))", 7},
     {[exceptions, tail_call],
      "(tag $e (param i32)) (global $n (mut i32) (i32.const 0))"
      " (func $f (param i32) (global.set $n (block $h (result i32)"
      "  (try_table (result i32) (catch $e $h) (throw $e (local.get 0))))))"
      " (func (export \"init\") (param i32) (return_call $f (local.get 0)))"
      " (func (export \"get\") (result i32) (global.get $n))", 7},
     {[function_references],
      "(type $t (func (result i32))) (table $t 1 (ref null $t)) (elem declare func $f)"
      " (func $f (result i32) (i32.const 7))"
      " (func (export \"init\") (param i32) (table.set $t (i32.const 0) (ref.func $f)))"
      " (func (export \"get\") (result i32) (call_ref $t (table.get $t (i32.const 0))))", 7}].

%% A snapshot of a snapshot.
t_twice(_) ->
    {ok, First} = preinit(preinit, [{"store", [8, 1]}]),
    {ok, Second} = wasmtime_test:preinit(First, #{}, [{"store", [12, 2]}]),
    Inst = started(Second),
    ?assertEqual({ok, <<1:32/little, 2:32/little>>}, wasmtime:read_memory(Inst, 8, 8)).

%% A snapshot has nothing that ties it to this project: it validates, pools, and serializes.
t_plain_module(_) ->
    {ok, Wasm} = preinit(preinit, [{"store", [8, 123]}]),
    ?assertEqual(ok, wasmtime:validate(Wasm)),
    wasmtime_test:with_pool(Wasm, #{instances => 1}, fun(Mod) ->
        [begin
             Inst = inst(Mod, #{}),
             ?assertEqual({ok, [123]}, wasmtime:call(Inst, <<"load">>, [8])),
             {ok, []} = wasmtime:call(Inst, <<"store">>, [8, I]),
             ok = wasmtime:destroy(Inst)
         end || I <- lists:seq(1, 5)]
    end),
    {ok, Artifact} = wasmtime:serialize(mod(Wasm, #{})),
    {ok, Loaded} = wasmtime:deserialize(Artifact),
    ?assertEqual({ok, [123]}, wasmtime:call(inst(Loaded, #{}), <<"load">>, [8])).

%% The same init gives the same bytes.
t_reproducible(_) ->
    Init = [{"store", [8, 123]}, {"grow", [1]}],
    ?assertEqual(preinit(preinit, Init), preinit(preinit, Init)).

%% ---- left out -------------------------------------------------------------------------------

%% The start section ran once, in the init, and is gone.
t_start_section(_) ->
    Inst = snapshot(preinit, #{}, []),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"starts">>, [])).

%% `_initialize' goes when it was called, in a list or by a function, and stays when it was not.
t_initialize(_) ->
    ?assert(lists:member(<<"_initialize">>, names(wasmtime_test:wasm(preinit)))),
    [begin
         {ok, Wasm} = preinit(preinit, Init),
         ?assertNot(lists:member(<<"_initialize">>, names(Wasm))),
         ?assertEqual({ok, [7]}, wasmtime:call(started(Wasm), <<"load">>, [0]))
     end || Init <- [["_initialize"], [{<<"_initialize">>, []}],
                     fun(I) -> {ok, []} = wasmtime:call(I, "_initialize", []), ok end]],
    [begin
         {ok, Wasm} = preinit(preinit, Init),
         ?assert(lists:member(<<"_initialize">>, names(Wasm)))
     end || Init <- [[], [{"store", [0, 1]}], fun(_) -> ok end]].

%% It counts when a call of it ended well, by whatever way it was made, and only then.
t_initialize_by_other_ways(_) ->
    Async = fun(I, Args, Opts) -> wasmtime:call_async(I, "_initialize", Args, Opts) end,
    Awaited = fun(I, Args, Opts) -> {ok, Job} = Async(I, Args, Opts), wasmtime:await(I, Job) end,
    Referred = fun(I, Args) ->
        {ok, Ref} = wasmtime:funcref(I, "_initialize"),
        wasmtime:call_ref(I, Ref, Args)
    end,
    Message = fun(I) ->
        {ok, Job} = Async(I, [], #{}),
        Ref = wasmtime:ref(I),
        receive {wasmtime_result, Ref, Job, {ok, []}} -> ok end
    end,
    Inbox = fun(I) ->
        {ok, _} = Async(I, [], #{}),
        wasmtime_test:wait_until(fun() -> wasmtime_test:mailbox() =/= [] end)
    end,
    Late = fun(I) -> {error, #{kind := timeout}} = Awaited(I, [], #{timeout => 0}) end,
    Queued = fun(I) ->
        {ok, _} = wasmtime:call_async(I, "spin", []),
        Late(I),
        {ok, Job} = Async(I, [], #{timeout => 0}),
        wasmtime_test:wait_until(fun() -> [Job] =:= [J || {wasmtime_result, _, J, _} <- wasmtime_test:mailbox(), J =:= Job] end),
        ok = wasmtime:interrupt(I),
        wasmtime_test:wait_until(fun() -> #{state := S, queued := Q} = wasmtime:info(I), {S, Q} =:= {idle, 0} end)
    end,
    [begin
         {ok, Wasm} = preinit(preinit, fun(I) -> Do(I), ok end),
         ?assertEqual(Stays, lists:member(<<"_initialize">>, names(Wasm))),
         ?assertEqual([], [M || {wasmtime_result, _, _, {error, #{kind := timeout}}} = M <- wasmtime_test:mailbox()])
     end || {Stays, Do} <- [{false, fun(I) -> {ok, []} = Awaited(I, [], #{}) end},
                            {false, fun(I) -> {ok, []} = Referred(I, []) end},
                            {false, Message}, {false, Inbox},
                            {true, fun(I) -> {error, #{kind := badarity}} = Async(I, [1], #{}) end},
                            {true, fun(I) -> {error, #{kind := badarity}} = Referred(I, [1]) end},
                            {true, fun(I) -> {ok, _} = wasmtime:funcref(I, "_initialize") end},
                            {true, Queued}]].

%% Exports that only the init needed can be removed; others cannot be by mistake.
t_remove_exports(_) ->
    {ok, Wasm} = preinit(preinit, #{remove_exports => ["set", <<"trap">>]}, []),
    Names = names(Wasm),
    [?assertNot(lists:member(Name, Names)) || Name <- [<<"set">>, <<"trap">>]],
    ?assert(lists:member(<<"get">>, Names)).

%% ---- init -----------------------------------------------------------------------------------

%% A function may do anything with the instance, and must say ok.
t_function(_) ->
    Inst = snapshot(preinit, #{}, fun(I) ->
        ok = wasmtime:write_memory(I, 16, <<"written">>),
        {ok, []} = wasmtime:call(I, <<"store">>, [8, 9]),
        ok
    end),
    ?assertEqual({ok, <<"written">>}, wasmtime:read_memory(Inst, 16, 7)),
    ?assertEqual({ok, [9]}, wasmtime:call(Inst, <<"load">>, [8])).

%% A function may change exported tables and globals: what is the module's own is carried, grown or set
%% to null as well; a term of the host is not, unless it was taken out again.
t_function_with_tables(_) ->
    Text = "(module (table (export \"f\") 2 9 funcref) (table (export \"x\") 2 externref)"
           " (global (export \"g\") (mut i64) (i64.const 1)) (elem (i32.const 1) func $own)"
           " (func $own (export \"own\") (result i32) (i32.const 9))"
           " (func (export \"call\") (param i32) (result i32) (call_indirect 0 (result i32) (local.get 0))))",
    Own = fun(I) ->
        {ok, Ref} = wasmtime:table_get(I, "f", 1),
        {ok, 2} = wasmtime:table_grow(I, "f", 2, Ref),
        ok = wasmtime:table_set(I, "f", 1, null),
        ok = wasmtime:global_set(I, "g", -5)
    end,
    Term = fun(I, Then) ->
        {ok, Ref} = wasmtime:externref(I, a_term),
        ok = wasmtime:table_set(I, "x", 0, Ref),
        Then()
    end,
    {ok, Wasm} = wasmtime_test:preinit({wat, Text}, #{}, Own),
    Inst = started(Wasm),
    ?assertEqual({{ok, 4}, {ok, -5}}, {wasmtime:table_size(Inst, "f"), wasmtime:global_get(Inst, "g")}),
    ?assertEqual([{ok, [9]}, {ok, [9]}], [wasmtime:call(Inst, "call", [At]) || At <- [2, 3]]),
    ?assertMatch(?WASMTIME_TRAP(indirect_call_to_null), wasmtime:call(Inst, "call", [1])),
    ?assertMatch(?WASMTIME_ERROR(preinit, table_changed),
                 wasmtime_test:preinit({wat, Text}, #{}, fun(I) -> Term(I, fun() -> ok end) end)),
    ?assertMatch({ok, _}, wasmtime_test:preinit({wat, Text}, #{}, fun(I) ->
        Term(I, fun() -> wasmtime:table_set(I, "x", 0, null) end)
    end)).

%% It may set globals and tables from outside as well.
t_function_sets_globals_and_tables(_) ->
    Text = "(module (global (export \"g\") (mut f64) (f64.const 0)) (table (export \"t\") 2 8 funcref)"
           " (func (export \"f\") (result i32) (i32.const 7))"
           " (func (export \"call\") (param i32) (result i32)"
           "  (call_indirect (result i32) (local.get 0))))",
    {ok, Wasm} = wasmtime_test:preinit({wat, Text}, #{}, fun(I) ->
        ok = wasmtime:global_set(I, "g", {f64, 16#7FF4000000000005}),
        {ok, Func} = wasmtime:funcref(I, "f"),
        ok = wasmtime:table_set(I, "t", 1, Func),
        {ok, 2} = wasmtime:table_grow(I, "t", 1, Func),
        ok
    end),
    Inst = started(Wasm),
    ?assertEqual({ok, {f64, 16#7FF4000000000005}}, wasmtime:global_get(Inst, "g")),
    ?assertEqual({ok, 3}, wasmtime:table_size(Inst, "t")),
    ?assertEqual({ok, null}, wasmtime:table_get(Inst, "t", 0)),
    [?assertEqual({ok, [7]}, wasmtime:call(Inst, "call", [I])) || I <- [1, 2]],
    %% A term of this VM is nothing that a snapshot could hold.
    ?assertMatch(?WASMTIME_ERROR(preinit, table_changed),
                 wasmtime_test:preinit({wat, "(module (table (export \"t\") 1 externref))"}, #{}, fun(I) ->
                     {ok, Ref} = wasmtime:externref(I, term),
                     wasmtime:table_set(I, "t", 0, Ref)
                 end)).

%% Whatever else it does is `init', with what it was in the message.
t_function_fails(_) ->
    [begin
         {error, #{class := preinit, kind := init, message := Message}} = preinit(preinit, Init),
         ?assertMatch({_, {_, _}}, {Message, binary:match(Message, Part)})
     end || {Init, Part} <- [{fun(_) -> error(oops) end, <<"raised oops">>},
                             {fun(_) -> exit(bye) end, <<"exited with bye">>},
                             {fun(_) -> throw(ball) end, <<"threw ball">>},
                             {fun(_) -> {ok, []} end, <<"{ok,[]}">>},
                             {fun(_) -> true end, <<"true">>}]].

%% A trap in a listed call is returned as it is, and there is no snapshot.
t_trap(_) ->
    ?assertMatch(?WASMTIME_TRAP(unreachable), preinit(preinit, [{"store", [8, 1]}, "trap"])),
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export), preinit(preinit, ["nothing"])),
    ?assertMatch(?WASMTIME_ERROR(call, badarity), preinit(preinit, [{"store", [1]}])),
    ?assertMatch(?WASMTIME_TRAP(unreachable), preinit(start_trap, [])).

t_bad_init(_) ->
    [?assertMatch({Bad, ?WASMTIME_ERROR(preinit, badarg)}, {Bad, preinit(preinit, Bad)})
     || Bad <- [init, 1, <<"init">>, [init], [1.5], [{"a", b}], [{"a", [], []}], ["a" | b],
                fun() -> ok end, fun(_, _) -> ok end, [<<"a", 0>>]]].

%% Host functions, WASI and compile options of the init.
t_options(_) ->
    Inst = wasmtime_test:preinit(source(start_host), #{{"env", "one"} => fun(_, [5]) -> {ok, [99]} end,
                                                  compile => #{opt_level => none}}, []),
    {ok, Wasm} = Inst,
    Started = inst(mod(Wasm, #{}), #{{"env", "one"} => fun(_, _) -> error(not_again) end}),
    ?assertEqual({ok, <<99>>}, wasmtime:read_memory(Started, 0, 1)),
    ?assertMatch({error, #{key := opt_level}}, preinit(preinit, #{compile => #{opt_level => 3}}, [])),
    ?assertMatch({error, #{class := preinit, kind := badarg, key := compile}},
                 preinit(preinit, #{compile => none}, [])),
    ?assertMatch({error, #{class := preinit, kind := badarg, key := nonsense}},
                 preinit(preinit, #{nonsense => 1}, [])),
    ?assertMatch({error, #{class := preinit, kind := badarg, key := remove_exports}},
                 preinit(preinit, #{remove_exports => [a]}, [])).

%% The init takes no slot of a pool, whatever it is compiled with.
t_no_pool(_) ->
    wasmtime_test:with_pool(preinit, #{instances => 1}, fun(Mod) ->
        Only = inst(Mod, #{}),
        ?assertMatch({ok, _}, preinit(preinit, #{compile => wasmtime_test:pool(#{instances => 1})},
                                      [{"store", [8, 1]}])),
        ok = wasmtime:destroy(Only)
    end).

%% The instance is gone on every way out.
t_nothing_left(_) ->
    Before = maps:get(instances, wasmtime_test:settled()),
    wasmtime_test:in_process(fun() ->
        [preinit(preinit, Init) || Init <- [[], ["trap"], fun(_) -> ok end, fun(_) -> error(x) end]]
    end),
    ?assertEqual(Before, maps:get(instances, wasmtime_test:settled())).

%% ---- refused --------------------------------------------------------------------------------

t_refused(_) ->
    [?assertMatch({Name, ?WASMTIME_ERROR(preinit, Kind)},
                  {Name, preinit(Name, #{compile => #{proposals => #{threads => true}}}, ["init"])})
     || {Name, Kind} <- [{import_memory, unsupported_import}, {import_table, unsupported_import},
                         {import_global, unsupported_import},
                         {preinit_gc_global, unsupported_type},
                         {preinit_shared, unsupported}, {preinit_reserved, unsupported}]],
    ?assertMatch(?WASMTIME_ERROR(preinit, unsupported_type),
                 preinit(traps_gc, #{compile => #{proposals => #{gc => true,
                                                                function_references => true}}}, [])),
    [?assertMatch(?WASMTIME_ERROR(preinit, malformed), wasmtime_test:preinit(Bin, #{}, []))
     || Bin <- [<<>>, <<"text">>, <<0, "asm", 1, 0, 0, 0, 99>>]],
    ?assertError(badarg, wasmtime_test:preinit(atom, #{}, [])).
