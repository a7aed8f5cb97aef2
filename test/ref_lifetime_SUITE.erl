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
    {Ref, Func, Point, Bytes} = wasmtime_test:in_process(fun() ->
        Inst = inst(#{}),
        {ok, Ref} = wasmtime:externref(Inst, {still, here}),
        {Ref, one(wasmtime:call(Inst, "get_double", [])),
         one(wasmtime:call(Inst, "new_point", [3, 4.5])), one(wasmtime:call(Inst, "new_bytes", [7]))}
    end),
    #{instances := Before} = wasmtime_test:settled(),
    ?assert(Before >= 1),
    ?assertEqual({ok, {still, here}}, wasmtime:externref_data(Ref)),
    ?assertMatch(#{kind := funcref}, wasmtime:ref_info(Func)),
    ok = wasmtime:struct_set(Point, 0, 5),
    ?assertEqual([{ok, 5}, {ok, 4.5}], [wasmtime:struct_get(Point, I) || I <- [0, 1]]),
    ?assertEqual({ok, 7}, wasmtime:array_len(Bytes)).

%% The last reference of an instance whose handle is gone takes the instance with it.
t_last_reference(_) ->
    #{instances := Before, stores := Stores} = wasmtime_test:settled(),
    wasmtime_test:in_process(fun() ->
        Ref = wasmtime_test:in_process(fun() ->
            {ok, Ref} = wasmtime:externref(inst(#{}), last), Ref
        end),
        #{instances := Live} = wasmtime_test:settled(),
        ?assertEqual(Before + 1, Live),
        wasmtime:externref_data(Ref)
    end),
    wasmtime_test:wait_until(fun() ->
        maps:with([instances, stores], wasmtime_test:settled())
            =:= #{instances => Before, stores => Stores}
    end).

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
    Live = live_before(),
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

%% As `live', once what the case before left is gone.
live_before() ->
    _ = wasmtime_test:settled(),
    live().

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
    Point = one(wasmtime:call(Inst, "new_point", [1, 1])),
    Bytes = one(wasmtime:call(Inst, "new_bytes", [1])),
    {Runner, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
    wasmtime_test:wait_until(fun() -> wasmtime:gc(Inst) =/= ok end),
    [?assertMatch(?WASMTIME_ERROR(call, busy), Do())
     || Do <- [fun() -> wasmtime:externref(Inst, 1) end, fun() -> wasmtime:gc(Inst) end,
               fun() -> wasmtime:funcref(Inst, "double") end,
               fun() -> wasmtime:struct_get(Point, 0) end,
               fun() -> wasmtime:struct_set(Point, 0, 1) end, fun() -> wasmtime:array_len(Bytes) end,
               fun() -> wasmtime:array_get(Bytes, 0) end, fun() -> wasmtime:array_set(Bytes, 0, 1) end,
               fun() -> wasmtime:struct_new(Inst, Point, [1, 1]) end,
               fun() -> wasmtime:array_new(Inst, Bytes, [1]) end]],
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

%% What a host function was given, and made, is released with its call.
t_released_in_host_calls(_) ->
    Swap = fun(Inst, [Extern, Any]) ->
        {ok, Made} = wasmtime:externref(Inst, made),
        {ok, [_]} = wasmtime:call(Inst, "extern", [Made]),
        {ok, [Any, Extern]}
    end,
    Inst = inst(#{{"env", "swap"} => Swap}),
    Live = live_before(),
    wasmtime_test:in_process(fun() ->
        [begin
             {ok, Ref} = wasmtime:externref(Inst, given),
             {ok, _} = wasmtime:struct_new(Inst, {param, "point", 1}, [1, 1.0]),
             {ok, [_, _]} = wasmtime:call(Inst, "host_swap", [Ref, {i31, 1}])
         end || _ <- lists:seq(1, 50)],
        ok
    end),
    _ = wasmtime_test:settled(),
    ok = wasmtime:gc(Inst),
    ?assertEqual(Live, live()),
    ok = wasmtime:destroy(Inst).

%% Pooled instances have heaps of their own, and leave their slots clean.
t_pooled(_) ->
    Live = live_before(),
    Compile = #{proposals => #{gc => true, function_references => true, exceptions => true}},
    wasmtime_test:with_pool(refs, #{instances => 2}, Compile, fun(Mod) ->
        [wasmtime_test:in_process(fun() ->
             {ok, Inst} = wasmtime_test:instantiate(Mod, reference_SUITE:imports()),
             {ok, Ref} = wasmtime:externref(Inst, I),
             {ok, []} = wasmtime:call(Inst, "keep_extern", [Ref]),
             {ok, []} = wasmtime:call(Inst, "churn", [1000]),
             ?assertEqual({ok, I}, wasmtime:externref_data(one(wasmtime:call(Inst, "kept_extern", [])))),
             ok = wasmtime:destroy(Inst)
         end) || I <- lists:seq(1, 20)]
    end),
    wasmtime_test:wait_until(fun() -> wasmtime_test:settled(), live() =:= Live end).

%% Many processes at one guest: each gets what it asked for, or hears that the guest is busy.
t_crowd(_) ->
    Inst = inst(#{}),
    Live = live_before(),
    Rounds = wasmtime_test:rounds(100, 500, 5000),
    Point = one(wasmtime:call(Inst, "new_point", [1, 1])),
    Work = [fun() -> wasmtime:call(Inst, "churn", [100]) end,
            fun() -> wasmtime:call(Inst, "host_apply", [4]) end,
            fun() -> wasmtime:externref(Inst, make_ref()) end,
            fun() -> until_let_in(fun() -> wasmtime:struct_set(Point, 0, 7) end) end,
            fun() -> wasmtime:struct_get(Point, 1) end,
            fun() -> wasmtime:global_get(Inst, "const") end,
            fun() -> wasmtime:table_get(Inst, "table", 0) end,
            fun() -> wasmtime:call(Inst, "point", [Point]) end,
            fun() -> wasmtime:gc(Inst) end],
    Callers = [wasmtime_test:caller(fun() -> [fine(Do()) || _ <- lists:seq(1, Rounds)], done end)
               || Do <- Work],
    [receive {Pid, Result} -> ?assertEqual(done, Result) end || {Pid, _} <- Callers],
    [receive {'DOWN', Monitor, _, _, _} -> ok end || {_, Monitor} <- Callers],
    ?assertMatch(#{kind := struct}, wasmtime:ref_info(Point)),
    _ = wasmtime_test:settled(),
    ok = wasmtime:gc(Inst),
    [References, Terms] = Live,
    ?assertEqual([References + 1, Terms], live()),
    ?assertEqual({ok, 7}, wasmtime:struct_get(Point, 0)),
    ok = wasmtime:destroy(Inst).

%% Its turn comes when the others are done, at the latest.
until_let_in(Do) ->
    case Do() of
        ?WASMTIME_ERROR(call, busy) -> until_let_in(Do);
        Result -> Result
    end.

fine(ok) -> ok;
fine({ok, _}) -> ok;
fine(?WASMTIME_ERROR(call, busy)) -> ok.
