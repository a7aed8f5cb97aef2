%% The pool: how many fit, and that nothing of one tenant reaches the next. Every pool verifies each
%% of its resets against the image.
-module(pool_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/2, with_pool/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(PAGE, 65536).
-define(MIB, 1048576).

%% The image of memory.wat.
pristine() ->
    Memory = binary:copy(<<0>>, 2 * ?PAGE),
    set(set(Memory, 16, <<"image">>), 65530, <<"straddle">>).

set(Memory, At, Data) ->
    Length = byte_size(Data),
    <<Before:At/binary, _:Length/binary, After/binary>> = Memory,
    <<Before/binary, Data/binary, After/binary>>.

is_pristine(Inst) ->
    {ok, {2, _}} = wasmtime:memory_size(Inst),
    ?assert({ok, pristine()} =:= wasmtime:read_memory(Inst, 0, 2 * ?PAGE), "foreign bytes"),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"count">>, [])).

%% As many as there are slots, then `pool_exhausted', then again when one is destroyed.
t_exhaustion(_) ->
    with_pool(memory, #{instances => 3}, fun(Mod) ->
        [First | _] = All = [inst(Mod, #{}) || _ <- lists:seq(1, 3)],
        ?assertMatch(#{total := 3, used := 3}, wasmtime:pool_info(Mod)),
        ?assertMatch(?WASMTIME_ERROR(pool, pool_exhausted), wasmtime_test:instantiate(Mod)),
        ok = wasmtime:destroy(First),
        Again = inst(Mod, #{}),
        is_pristine(Again),
        [ok = wasmtime:destroy(Inst) || Inst <- [Again | All]]
    end).

%% `destroy' is `ok' when the slot is free, for everybody: while another process waits for a dirty scheduler to
%% restore it, and when that one was killed there.
t_destroyed_by_several(_) ->
    with_pool(memory, #{instances => 1}, fun(Mod) ->
        [without_dirty_scheduler(fun() -> destroyed_by_two(Mod, End) end) || End <- [live, kill]]
    end).

destroyed_by_two(Mod, End) ->
    Inst = inst(Mod, #{}),
    grown(Inst),
    {First, Monitor} = spawn_monitor(fun() -> wasmtime:destroy(Inst) end),
    wasmtime_test:wait_until(fun() -> maps:get(state, wasmtime:info(Inst)) =:= destroyed end),
    End =:= kill andalso exit(First, kill),
    ok = wasmtime:destroy(Inst),
    ?assertMatch(#{used := 0}, wasmtime:pool_info(Mod)),
    Next = inst(Mod, #{}),
    is_pristine(Next),
    ok = wasmtime:destroy(Next),
    receive {'DOWN', Monitor, process, First, _} -> ok end.

%% Runs while something long is on the only dirty scheduler.
without_dirty_scheduler(Fun) ->
    Online = erlang:system_flag(dirty_cpu_schedulers_online, 1),
    Func = "(func (param i32) (result i32) (i32.mul (local.get 0) (i32.add (local.get 0) (i32.const 3))))",
    Compile = fun() -> wasmtime:compile({wat, ["(module", lists:duplicate(30_000, Func), ")"]}) end,
    {Pid, Monitor} = spawn_monitor(fun() -> {ok, _} = Compile() end),
    wasmtime_test:wait_until(fun() -> {status, running} =:= process_info(Pid, status) end),
    try Fun()
    after
        erlang:system_flag(dirty_cpu_schedulers_online, Online),
        receive {'DOWN', Monitor, process, Pid, normal} -> ok end
    end.

%% The caps on memories and tables are kept as well.
t_caps(_) ->
    with_pool(memory, #{instances => 4, memories => 2}, fun(Mod) ->
        All = [inst(Mod, #{}) || _ <- [1, 2]],
        ?assertMatch(?WASMTIME_ERROR(pool, pool_exhausted), wasmtime_test:instantiate(Mod)),
        [ok = wasmtime:destroy(Inst) || Inst <- All]
    end),
    with_pool(tables, #{instances => 4, tables => 3}, fun(Mod) ->
        Inst = inst(Mod, #{}),
        ?assertMatch(?WASMTIME_ERROR(pool, pool_exhausted), wasmtime_test:instantiate(Mod)),
        ok = wasmtime:destroy(Inst)
    end).

%% An instance that failed to start gives its slot back.
t_failed_start(_) ->
    with_pool({wat, "(module (memory 1) (func $f unreachable) (start $f))"}, #{instances => 2},
              fun(Mod) ->
                  [?assertMatch(?WASMTIME_TRAP(unreachable), wasmtime_test:instantiate(Mod))
                   || _ <- lists:seq(1, 20)]
              end).

%% A memory larger than the pool's is an error, at the start and in growth.
t_too_large(_) ->
    Text = {wat, "(module (memory (export \"memory\") 3))"},
    Pool = fun(Pages) -> wasmtime_test:pool(#{max_memory => Pages * ?PAGE}) end,
    ?assertMatch({error, #{class := Class}} when Class =:= compile; Class =:= limit; Class =:= pool,
                 case wasmtime:compile(Text, Pool(2)) of
                     {ok, Mod} -> wasmtime_test:instantiate(Mod);
                     Error -> Error
                 end),
    {ok, Fits} = wasmtime:compile(Text, Pool(3)),
    ok = wasmtime:destroy(inst(Fits, #{})),
    with_pool(memory, #{max_memory => 3 * ?PAGE}, fun(Mod) ->
        Inst = inst(Mod, #{}),
        ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [1])),
        ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow">>, [1])),
        ok = wasmtime:destroy(Inst)
    end).

%% A pool that the host cannot reserve is refused, and the VM goes on.
t_pool_too_large(_) ->
    Huge = #{allocator => pooling,
             pooling => #{instances => 10000, memories => 10000, max_memory => 4096 * ?MIB}},
    case wasmtime:compile(wasmtime_test:source(memory), Huge) of
        {ok, Mod} -> ok = wasmtime:destroy(inst(Mod, #{}));
        Error -> ?assertMatch(?WASMTIME_ERROR(compile, pool_too_large), Error)
    end,
    ok = wasmtime:destroy(inst(wasmtime_test:mod(memory), #{})).

%% Everything a tenant writes is gone for the next: both sides of the segments, whole pages, the
%% end, the globals, grown memory.
t_reuse(_) ->
    Writes = [fun(I) -> ok = wasmtime:write_memory(I, 0, binary:copy(<<255>>, 2 * ?PAGE)) end,
              fun(I) -> ok = wasmtime:write_memory(I, 16, <<"IMAGE">>) end,
              fun(I) -> ok = wasmtime:write_memory(I, 2 * ?PAGE - 1, <<1>>) end,
              fun(I) -> {ok, []} = wasmtime:call(I, <<"fill">>, [1, 7, 2 * ?PAGE - 1]) end,
              fun(I) -> {ok, []} = wasmtime:call(I, <<"copy">>, [4096, 0, ?PAGE]) end,
              fun(I) -> {ok, [_]} = wasmtime:call(I, <<"count">>, []) end,
              fun grown/1,
              fun(_) -> ok end],
    [with_pool(memory, #{instances => 1, keep_resident => Keep}, fun(Mod) ->
        [begin
             Inst = inst(Mod, #{}),
             is_pristine(Inst),
             Write(Inst),
             ok = wasmtime:destroy(Inst)
         end || _ <- [1, 2], Write <- Writes],
        Last = inst(Mod, #{}),
        is_pristine(Last),
        ok = wasmtime:destroy(Last)
     end) || Keep <- [0, 4096, ?PAGE, ?MIB, 64 * ?MIB]].

%% Memory that was grown into holds zeros for the next who grows.
grown(Inst) ->
    {ok, [2]} = wasmtime:call(Inst, <<"grow">>, [100]),
    ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"first_foreign">>, [2 * ?PAGE, 102 * ?PAGE])),
    {ok, []} = wasmtime:call(Inst, <<"fill">>, [2 * ?PAGE, 255, 100 * ?PAGE]).

%% Grown memory is out of reach again after a reset.
t_growth_is_undone(_) ->
    with_pool(memory, #{instances => 1, keep_resident => 64 * ?MIB}, fun(Mod) ->
        First = inst(Mod, #{}),
        grown(First),
        ok = wasmtime:destroy(First),
        Next = inst(Mod, #{}),
        ?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds),
                     wasmtime:call(Next, <<"load">>, [2 * ?PAGE])),
        grown(Next),
        ok = wasmtime:destroy(Next)
    end).

%% Slots go back and forth between modules of one engine without a mix-up of their images.
t_two_images(_) ->
    Text = fun(Word) ->
        {wat, ["(module (memory (export \"memory\") 1) (data (i32.const 100) \"", Word, "\")"
               " (func (export \"f\") (i32.store (i32.const 100) (i32.const -1))))"]}
    end,
    Mods = [{Word, wasmtime_test:mod(Text(Word), wasmtime_test:pool(#{instances => 2}))}
            || Word <- [<<"aaaa">>, <<"bbbb">>, <<"cccc">>]],
    [begin
         Inst = inst(Mod, #{}),
         ?assertEqual({ok, Word}, wasmtime:read_memory(Inst, 100, 4)),
         {ok, []} = wasmtime:call(Inst, <<"f">>, []),
         ok = wasmtime:destroy(Inst)
     end || _ <- lists:seq(1, 50), {Word, Mod} <- Mods],
    [?assertMatch(#{used := 0}, wasmtime:pool_info(Mod)) || {_, Mod} <- Mods],
    [?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Mod)) || {_, Mod} <- Mods].

%% A slot that another module left much in is cleared on a dirty scheduler, and only then; so it is for
%% a template.
t_slot_of_another_module(_) ->
    Pool = wasmtime_test:pool(#{instances => 1, keep_resident => 64 * ?MIB}),
    [One, Other] = [wasmtime_test:mod({wat, ["(module (memory (export \"memory\") 1)"
                                             " (data (i32.const 100) \"", Word, "\")"
                                             " (func (export \"grow\") (result i32) (memory.grow (i32.const 500))))"]}, Pool)
                    || Word <- ["aaaa", "bbbb"]],
    Leaves = fun(Mod, MiB) ->
        Inst = inst(Mod, #{}),
        {ok, [1]} = wasmtime:call(Inst, <<"grow">>, []),
        ok = wasmtime:write_memory(Inst, 0, binary:copy(<<255>>, MiB * ?MIB)),
        ok = wasmtime:destroy(Inst),
        wasmtime_test:restored(Mod)
    end,
    Is = fun(Word, Inst) ->
        ?assertEqual({ok, Word}, wasmtime:read_memory(Inst, 100, 4)),
        ?assertEqual({ok, <<0, 0>>}, wasmtime:read_memory(Inst, 65534, 2)),
        ok = wasmtime:destroy(Inst),
        wasmtime_test:restored(One)
    end,
    {ok, Opts, _} = wasmtime_options:instance(instantiate, #{}, module),
    New = fun(Mod) -> wasmtime_nif:instance_new(Mod, Opts, make_ref()) end,
    {ok, Template} = wasmtime_test:prepare(Other, #{}),
    From = fun() -> wasmtime_nif:instance_from(element(2, Template), make_ref()) end,
    Leaves(One, 16),
    ?assertEqual([dirty, dirty, dirty], [New(Other), From(), New(Other)]),
    ?assertMatch(#{used := 0, warm := 1}, wasmtime:pool_info(One)),
    Is(<<"bbbb">>, inst(Other, #{})),
    Leaves(One, 16),
    {ok, Made} = wasmtime:instantiate(Template),
    Is(<<"bbbb">>, Made),
    %% Of its own module the slot is taken as it is, and little is cleared at once.
    Leaves(One, 16),
    {ok, Own} = New(One),
    ok = wasmtime_nif:instance_destroy_dirty(Own),
    Is(<<"aaaa">>, inst(One, #{})),
    Is(<<"bbbb">>, inst(Other, #{})),
    Leaves(One, 1),
    {ok, Little} = New(Other),
    ok = wasmtime_nif:instance_destroy_dirty(Little),
    ?assertMatch(#{used := 0}, wasmtime:pool_info(One)),
    ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(One)).

%% A tenant that trapped, timed out or was interrupted leaves as little behind.
t_after_failures(_) ->
    with_pool(memory, #{instances => 1, keep_resident => ?MIB}, fun(Mod) ->
        [begin
             Inst = inst(Mod, #{}),
             is_pristine(Inst),
             ok = wasmtime:write_memory(Inst, 0, rand:bytes(?PAGE)),
             ?assertMatch({error, _}, wasmtime:call(Inst, <<"load">>, [-1])),
             ok = wasmtime:destroy(Inst)
         end || _ <- lists:seq(1, 20)]
    end).

%% Slots that were used are warm, and resets count what they restored.
t_info(_) ->
    with_pool(memory, #{instances => 2, keep_resident => ?MIB}, fun(Pooled) ->
        ?assertMatch(#{total := 2, used := 0, resets := 0, bytes_restored := 0},
                     wasmtime:pool_info(Pooled)),
        Tenant = inst(Pooled, #{}),
        ok = wasmtime:write_memory(Tenant, 0, <<1>>),
        ok = wasmtime:destroy(Tenant),
        #{resets := Resets, bytes_restored := Restored, warm := Warm} = wasmtime_test:restored(Pooled),
        ?assert(Resets >= 1),
        ?assert(Restored >= 4096),
        ?assertEqual(1, Warm)
    end),
    %% Without a pool it is what the engine holds just then; this set of options has its own engine.
    Mod = wasmtime_test:mod(memory, #{proposals => #{wide_arithmetic => true, tail_call => false}}),
    ?assertEqual(#{total => 0, used => 0, warm => 0, restoring => 0, resets => 0, bytes_restored => 0,
                   verify_failures => 0}, wasmtime:pool_info(Mod)),
    Inst = inst(Mod, #{}),
    ?assertMatch(#{total := 1, used := 1}, wasmtime:pool_info(Mod)),
    ok = wasmtime:destroy(Inst).

%% Random tenants, several at a time: writes anywhere, bulk operations, growth. Each begins with the
%% image and nothing else.
t_soak(_) ->
    Requests = wasmtime_test:rounds(3000, 3000, 100_000),
    Workers = 4,
    with_pool(memory, #{instances => Workers, keep_resident => 128 * 1024}, fun(Mod) ->
        Callers = [wasmtime_test:caller(fun() -> tenants(Mod, Requests div Workers) end)
                   || _ <- lists:seq(1, Workers)],
        [receive {Pid, Result} -> ?assertEqual(ok, Result);
                 {'DOWN', Monitor, _, _, Reason} when Reason =/= normal -> error(Reason)
         end || {Pid, Monitor} <- Callers],
        #{resets := Resets} = wasmtime_test:restored(Mod),
        ?assert(Resets >= (Requests div Workers) * Workers)
    end).

tenants(_, 0) -> ok;
tenants(Mod, N) ->
    Inst = inst(Mod, #{}),
    is_pristine(Inst),
    [random(rand:uniform(6), Inst) || _ <- lists:seq(1, rand:uniform(8))],
    ok = wasmtime:destroy(Inst),
    tenants(Mod, N - 1).

random(1, Inst) -> wasmtime:write_memory(Inst, at(), rand:bytes(rand:uniform(64)));
random(2, Inst) -> wasmtime:call(Inst, <<"fill">>, [at(), 170, rand:uniform(?PAGE)]);
random(3, Inst) -> wasmtime:call(Inst, <<"copy">>, [at(), at(), rand:uniform(?PAGE)]);
random(4, Inst) -> wasmtime:call(Inst, <<"store">>, [at(), 255]);
random(5, Inst) -> wasmtime:call(Inst, <<"grow">>, [rand:uniform(3)]);
random(6, Inst) ->
    {ok, {Pages, Bytes}} = wasmtime:memory_size(Inst),
    ?assertEqual({ok, [-1]}, case Pages of
                                 2 -> {ok, [-1]};
                                 _ -> wasmtime:call(Inst, <<"grow">>, [100_000])
                             end),
    wasmtime:write_memory(Inst, Bytes - 1, <<1>>).

at() -> rand:uniform(2 * ?PAGE) - 1.
