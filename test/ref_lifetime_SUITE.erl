%% Lifetimes of references: what they keep alive, when they let go, and who may use them.
-module(ref_lifetime_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(reference_SUITE, [inst/1, with_refs/1, one/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% A reference belongs to one instance: no other takes it.
t_wrong_instance(_) ->
    with_refs(fun(A) -> with_refs(fun(B) ->
        {ok, Extern} = wasmtime:externref(A, a),
        Double = one(wasmtime:call(A, "get_double", [])),
        Point = one(wasmtime:call(A, "new_point", [1, 1])),
        Exn = one(wasmtime:call(A, "catch", [])),
        [?assertMatch({Name, ?WASMTIME_ERROR(call, wrong_instance)},
                      {Name, wasmtime:call(B, Name, [Ref])})
         || {Name, Ref} <- [{"extern", Extern}, {"func", Double}, {"unary", Double}, {"any", Point},
                            {"point", Point}, {"rethrow", Exn}]],
        ?assertMatch(?WASMTIME_ERROR(call, wrong_instance), wasmtime:call_ref(B, Double, [1])),
        {error, #{message := Message}} =
            wasmtime:call(B, "mixed", [<<0:128>>, null, 1, Point, 1.0]),
        ?assertMatch({_, {_, _}}, {Message, binary:match(Message, <<"value 4">>)}),
        ?assertEqual({ok, [42]}, wasmtime:call(B, "host_apply", [21]))
    end) end).

%% A reference outlives the handle, and the process that made both.
t_outlives_handle(_) ->
    {Ref, Func} = wasmtime_test:in_process(fun() ->
        Inst = inst(#{}),
        {ok, Ref} = wasmtime:externref(Inst, {still, here}),
        {Ref, one(wasmtime:call(Inst, "get_double", []))}
    end),
    #{instances := Before} = wasmtime_test:settled(),
    ?assert(Before >= 1),
    ?assertEqual({ok, {still, here}}, wasmtime:externref_data(Ref)),
    ?assertMatch(#{kind := funcref}, wasmtime:ref_info(Func)).

%% After destroy a reference is refused, and only what it holds itself is there.
t_after_destroy(_) ->
    Inst = inst(#{}),
    {ok, Ref} = wasmtime:externref(Inst, term),
    Double = one(wasmtime:call(Inst, "get_double", [])),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call_ref(Inst, Double, [1])),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Inst, "extern", [Ref])),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:externref(Inst, term)),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:gc(Inst)),
    ?assertMatch(#{kind := externref}, wasmtime:ref_info(Ref)),
    ?assertEqual({ok, term}, wasmtime:externref_data(Ref)).

%% Whatever was made is released with its term: counted, after a collection.
t_released(_) ->
    Inst = inst(#{}),
    Live = live(),
    wasmtime_test:in_process(fun() ->
        Refs = [begin
                    {ok, Ref} = wasmtime:externref(Inst, I),
                    [Ref, one(wasmtime:call(Inst, "extern", [Ref])),
                     one(wasmtime:call(Inst, "new_point", [I, 1])),
                     one(wasmtime:call(Inst, "get_double", []))]
                end || I <- lists:seq(1, 100)],
        ?assertEqual([R + T || {R, T} <- lists:zip(Live, [400, 100])], live()),
        length(Refs)
    end),
    _ = wasmtime_test:settled(),
    ok = wasmtime:gc(Inst),
    ?assertEqual(Live, live()),
    %% What the guest holds stays until it lets go.
    wasmtime_test:in_process(fun() ->
        {ok, Ref} = wasmtime:externref(Inst, held),
        {ok, []} = wasmtime:call(Inst, "keep_extern", [Ref])
    end),
    _ = wasmtime_test:settled(),
    ok = wasmtime:gc(Inst),
    [Refs, Terms] = Live,
    ?assertEqual([Refs, Terms + 1], live()),
    {ok, []} = wasmtime:call(Inst, "keep_extern", [null]),
    ok = wasmtime:gc(Inst),
    ?assertEqual(Live, live()),
    ok = wasmtime:destroy(Inst).

live() ->
    #{references := References, terms := Terms} = wasmtime_nif:live(),
    [References, Terms].

%% Destroying an instance releases the terms that its guest held.
t_released_with_store(_) ->
    [_, Terms] = live(),
    Inst = inst(#{}),
    {ok, Ref} = wasmtime:externref(Inst, held),
    {ok, []} = wasmtime:call(Inst, "keep_extern", [Ref]),
    ?assertEqual(Terms + 1, lists:last(live())),
    Kept = wasmtime:ref_info(Ref),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(#{kind := externref}, Kept),
    wasmtime_test:wait_until(fun() -> erlang:garbage_collect(), lists:last(live()) =:= Terms end).

%% References are dropped, on whatever scheduler, while their guest runs.
t_dropped_while_running(_) ->
    Inst = inst(#{}),
    [References, Terms] = live(),
    {Pid, _} = wasmtime_test:caller(fun() ->
        Refs = [begin {ok, Ref} = wasmtime:externref(Inst, I), Ref end || I <- lists:seq(1, 1000)],
        receive drop -> length(Refs) end
    end),
    wasmtime_test:wait_until(fun() -> live() =:= [References + 1000, Terms + 1000] end),
    {Runner, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
    wasmtime_test:wait_until(fun() -> wasmtime:gc(Inst) =/= ok end),
    Pid ! drop,
    receive {Pid, 1000} -> ok end,
    wasmtime_test:wait_until(fun() -> hd(live()) =:= References end),
    ?assertMatch(?WASMTIME_ERROR(call, busy), wasmtime:gc(Inst)),
    wasmtime_test:wait_until(fun() -> wasmtime:interrupt(Inst) =:= ok end),
    receive {Runner, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
    ok = wasmtime:gc(Inst),
    ?assertEqual([References, Terms], live()),
    ok = wasmtime:destroy(Inst).

%% While the guest runs its references are busy, except for what they hold themselves.
t_busy(_) ->
    Inst = inst(#{}),
    {ok, Ref} = wasmtime:externref(Inst, term),
    {Runner, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
    wasmtime_test:wait_until(fun() -> wasmtime:gc(Inst) =/= ok end),
    ?assertMatch(?WASMTIME_ERROR(call, busy), wasmtime:externref(Inst, 1)),
    ?assertMatch(?WASMTIME_ERROR(call, busy), wasmtime:fuel_remaining(Inst)),
    ?assertEqual({ok, term}, wasmtime:externref_data(Ref)),
    ?assertMatch(#{kind := externref}, wasmtime:ref_info(Ref)),
    ok = wasmtime:destroy(Inst),
    receive {Runner, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end.

%% References in the result of a caller that died go as well.
t_dead_caller(_) ->
    Inst = inst(#{}),
    [References, Terms] = live(),
    [begin
         {Pid, Monitor} = spawn_monitor(fun() -> wasmtime:call(Inst, "new_point", [1, 1]) end),
         exit(Pid, kill),
         receive {'DOWN', Monitor, _, _, _} -> ok end
     end || _ <- lists:seq(1, 100)],
    wasmtime_test:wait_until(fun() -> live() =:= [References, Terms] end),
    ok = wasmtime:destroy(Inst).
