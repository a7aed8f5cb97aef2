%% Panics of the library's own code, injected at each point that native/runtime/src/inject.rs names.
%% scripts/test-panics.sh runs it over a build with the feature `inject-panics'. Rule: who waits gets an
%% error, the next call works, and nothing native is left.
-module(panics_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [caller/1, settled/0]).

-define(PANIC, ?WASMTIME_ERROR(internal, panic)).
-define(GONE, ?WASMTIME_ERROR(call, destroyed)).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% Every point panics, time and again, where it can be reached; and then everything works.
t_every_point(_) ->
    Points = wasmtime_nif:panic_points(),
    ?assertEqual([], Points -- [Point || {Point, _} <- cases()]),
    Rounds = wasmtime_test:rounds(2, 20, 200),
    [wasmtime_test:counted(fun() ->
         [once(Point, Case) || _ <- lists:seq(1, Rounds)]
     end) || {Point, Case} <- cases()].

once(Point, Case) ->
    Mods = #{host := Mod} = mods(),
    try
        Case(Mods, Point),
        wasmtime_test:wait_until(fun() -> maps:get(used, wasmtime:pool_info(Mod)) =:= 0 end),
        wasmtime_test:wait_until(fun() -> wasmtime_nif:panic_left(Point) =:= 0 end)
    catch
        Class:Reason:Stack -> erlang:raise(Class, {Point, Reason}, Stack)
    end,
    works(Mods).

arm(Point) ->
    0 = wasmtime_nif:panic_left(Point),
    ok = wasmtime_nif:panic_arm(Point, 1).

%% Where the runner does not come by.
unreached(Point, Case) ->
    Case(),
    ?assertEqual(1, wasmtime_nif:panic_left(Point)),
    ok = wasmtime_nif:panic_arm(Point, 0).

mods() ->
    Pool = wasmtime_test:pool(#{instances => 16}),
    maps:from_list([{Name, wasmtime_test:mod(Name, Pool)} || Name <- [host, loop, start_trap]]).

host(#{host := Mod}) -> host(Mod, fun(_, [X]) -> {ok, [X + 1]} end).

host(Mod, Fun) -> wasmtime_test:instantiate(Mod, wasmtime_test:one(Fun)).

loop(#{loop := Mod}) ->
    {ok, Inst} = wasmtime_test:instantiate(Mod, #{{"env", "tick"} => fun(_, []) -> timer:sleep(infinity) end}),
    Inst.

works(Mods) ->
    {ok, Inst} = host(Mods),
    works_on(Inst),
    ?assertEqual({ok, <<0>>}, wasmtime:read_memory(Inst, 7, 1)),
    ok = wasmtime:write_memory(Inst, 7, <<1>>),
    ok = wasmtime:destroy(Inst),
    Loop = loop(Mods),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(Loop, <<"spin">>, [], #{timeout => 2})),
    ok = wasmtime:destroy(Loop).

works_on(Inst) ->
    ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])),
    ?assertEqual({ok, [8]}, wasmtime:call(Inst, <<"one">>, [7])).

%% What each point is reached by, and what comes of it.
cases() ->
    [{<<"compile">>, fun(_, Point) ->
        arm(Point),
        ?assertMatch(?PANIC, wasmtime:compile(wasmtime_test:source(add)))
    end},
     {<<"options">>, fun(#{host := Mod} = Mods, Point) ->
        [begin arm(Point), ?assertMatch(?PANIC, Do()) end
         || Do <- [fun() -> wasmtime:compile(wasmtime_test:source(add)) end, fun() -> host(Mods) end,
                   fun() -> wasmtime_test:prepare(Mod, wasmtime_test:one(fun(_, A) -> {ok, A} end)) end]],
        {ok, Inst} = host(Mods),
        [begin arm(Point), ?assertMatch(?PANIC, Do()) end
         || Do <- [fun() -> wasmtime:call(Inst, <<"double">>, [1]) end,
                   fun() -> wasmtime:call_async(Inst, <<"double">>, [1]) end]],
        lives(Inst)
    end},
     {<<"instantiate">>, fun(Mods, Point) -> arm(Point), ?assertMatch(?PANIC, host(Mods)) end},
     {<<"decode">>, fun one_call/2},
     {<<"tell">>, fun one_call/2},
     {<<"encode_call">>, fun one_call/2},
     {<<"answer">>, fun one_call/2},
     {<<"encode">>, fun one_call/2},
     {<<"step">>, fun fatal/2},
     {<<"poll">>, fun fatal/2},
     {<<"execute">>, fun(Mods, Point) ->
        {ok, Inst} = host(Mods),
        arm(Point),
        ?assertMatch(?PANIC, wasmtime:call(Inst, <<"double">>, [1])),
        dead(Inst)
    end},
     {<<"thread">>, fun(Mods, Point) ->
        {ok, Inst} = host(Mods),
        arm(Point),
        case persistent_term:get(wasmtime_test) of
            thread -> ?assertMatch(?PANIC, wasmtime:call(Inst, <<"one">>, [1])), dead(Inst);
            scheduler -> unreached(Point, fun() -> works_on(Inst) end), ok = wasmtime:destroy(Inst)
        end
    end},
     {<<"park">>, fun(Mods, Point) ->
        {ok, Inst} = host(Mods),
        arm(Point),
        case persistent_term:get(wasmtime_test) of
            thread -> works_on(Inst), works_on(Inst);
            scheduler -> unreached(Point, fun() -> works_on(Inst) end)
        end,
        lives(Inst)
    end},
     {<<"access">>, fun(Mods, Point) ->
        {ok, Inst} = host(Mods),
        [begin arm(Point), ?assertMatch(?PANIC, Do()) end
         || Do <- [fun() -> wasmtime:read_memory(Inst, 0, 1) end,
                   fun() -> wasmtime:write_memory(Inst, 0, <<1>>) end,
                   fun() -> wasmtime:memory_size(Inst) end]],
        lives(Inst)
    end},
     {<<"tick">>, fun timeout/2},
     {<<"fire">>, fun timeout/2},
     {<<"nag">>, fun timeout/2},
     {<<"down">>, fun caller_dies/2},
     {<<"expire">>, fun(Mods, Point) ->
        case persistent_term:get(wasmtime_test) of
            scheduler -> caller_dies(Mods, Point);
            thread -> arm(Point), unreached(Point, fun() -> works(Mods) end)
        end
    end},
     {<<"resource">>, fun dropped/2},
     {<<"background">>, fun dropped/2},
     {<<"bury">>, fun destroyed/2},
     {<<"restorer">>, fun(_, Point) ->
        %% Large enough that somebody else restores it, where the next guest needs no thread.
        Mod = wasmtime_test:mod({wat, "(module (memory (export \"memory\") 8))"}, wasmtime_test:pool(#{})),
        [begin
             {ok, Inst} = wasmtime:instantiate(Mod, #{runner => scheduler}),
             ?assertEqual({ok, <<0>>}, wasmtime:read_memory(Inst, 7, 1)),
             ok = wasmtime:write_memory(Inst, 7, <<1>>),
             arm(Point),
             ok = wasmtime:destroy(Inst),
             ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Mod))
         end || _ <- [1, 2]]
    end},
     {<<"restore">>, fun(Mods, Point) -> destroyed(Mods, Point), dropped(Mods, Point) end},
     {<<"store">>, fun(#{start_trap := Mod} = Mods, Point) ->
        destroyed(Mods, Point),
        dropped(Mods, Point),
        arm(Point),
        ?assertMatch({error, _}, wasmtime_test:instantiate(Mod))
    end}].

%% An error of one call, and the instance lives on.
one_call(Mods, Point) ->
    {ok, Inst} = host(Mods),
    arm(Point),
    ?assertMatch(?PANIC, wasmtime:call(Inst, <<"one">>, [1])),
    works_on(Inst),
    arm(Point),
    case wasmtime:call_async(Inst, <<"one">>, [1]) of
        {ok, Call} -> ?assertMatch(?PANIC, wasmtime:await(Inst, Call));
        Refused -> ?assertMatch(?PANIC, Refused)
    end,
    lives(Inst).

lives(Inst) ->
    works_on(Inst),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).

dead(Inst) ->
    ?assertMatch(?GONE, wasmtime:call(Inst, <<"double">>, [2])),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).

%% An error of all that is queued, which is the end of the instance.
fatal(#{host := Mod}, Point) ->
    Self = self(),
    {ok, Inst} = host(Mod, fun(_, [X]) -> Self ! {serving, self()}, receive go -> {ok, [X]} end end),
    Calls = [{First, _} | _] = [caller(fun() -> wasmtime:call(Inst, <<"one">>, [N]) end) || N <- [1, 2, 3]],
    receive {serving, First} -> ok end,
    wasmtime_test:wait_until(fun() -> maps:get(queued, wasmtime:info(Inst), 2) =:= 2 end),
    arm(Point),
    First ! go,
    [receive {Pid, Result} -> ?assertMatch(?PANIC, Result); {serving, Pid} -> error(not_ended) end
     || {Pid, _} <- Calls],
    [demonitor(Monitor, [flush]) || {_, Monitor} <- Calls],
    dead(Inst).

%% A deadline is kept all the same.
timeout(Mods, Point) ->
    Inst = loop(Mods),
    arm(Point),
    timed_out(Inst, Point),
    ok = wasmtime:destroy(Inst).

%% A run that ends at once is not bumped again.
timed_out(Inst, Point) ->
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(Inst, <<"spin">>, [], #{timeout => 5})),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    wasmtime_nif:panic_left(Point) =:= 0 orelse timed_out(Inst, Point).

%% A call ends with its caller, and what queues behind it is answered.
caller_dies(Mods, Point) ->
    Inst = loop(Mods),
    {Pid, Monitor} = caller(fun() -> wasmtime:call(Inst, <<"tick_once">>, []) end),
    wasmtime_test:wait_until(fun() -> maps:get(state, wasmtime:info(Inst)) =:= host_call end),
    {Queued, _} = caller(fun() -> wasmtime:call(Inst, <<"ok">>, []) end),
    wasmtime_test:calling(Queued),
    arm(Point),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, killed} -> ok end,
    receive {Queued, Result} -> ?assertMatch(?GONE, Result) end,
    ?assertMatch(?GONE, wasmtime:call(Inst, <<"ok">>, [])),
    ok = wasmtime:destroy(Inst).

dropped(#{host := Mod} = Mods, Point) ->
    wasmtime_test:in_process(fun() ->
        {ok, Inst} = host(Mods),
        works_on(Inst),
        ok = wasmtime:write_memory(Inst, 7, <<1>>),
        arm(Point)
    end),
    wasmtime_test:wait_until(fun() -> maps:get(used, wasmtime:pool_info(Mod)) =:= 0 end).

destroyed(#{host := Mod} = Mods, Point) ->
    {ok, Inst} = host(Mods),
    works_on(Inst),
    ok = wasmtime:write_memory(Inst, 7, <<1>>),
    %% A thread that still has the guest would take it down in the place of who destroys it.
    wasmtime_test:wait_until(fun() -> maps:get(threads_running, wasmtime_nif:live()) =:= 0 end),
    arm(Point),
    ?assertEqual(ok, wasmtime:destroy(Inst)),
    ?assertEqual(0, maps:get(used, wasmtime:pool_info(Mod))).

%% Points go off at random under load: nobody waits for ever, nobody is lied to, and nothing is left.
t_storm(_) ->
    Points = [P || P <- wasmtime_nif:panic_points(), P =/= <<"compile">>, P =/= <<"options">>],
    wasmtime_test:counted(fun() ->
        Mods = mods(),
        Rounds = wasmtime_test:rounds(100, 500, 5000),
        Workers = [caller(fun() -> worker(Seed, Rounds, Mods) end) || Seed <- lists:seq(1, 6)],
        Bomber = spawn_link(fun() -> bomb(Points) end),
        [receive {Pid, Done} -> ?assertEqual(done, Done);
                 {'DOWN', _, _, Pid, Reason} -> error({worker, Reason})
         end || {Pid, _} <- Workers],
        unlink(Bomber),
        exit(Bomber, kill),
        [wasmtime_nif:panic_arm(Point, 0) || Point <- Points],
        _ = settled(),
        works(Mods)
    end).

bomb(Points) ->
    ok = wasmtime_nif:panic_arm(lists:nth(rand:uniform(length(Points)), Points), 1),
    timer:sleep(rand:uniform(3)),
    bomb(Points).

worker(Seed, Rounds, Mods) ->
    rand:seed(exsss, Seed),
    [act(rand:uniform(5), Mods) || _ <- lists:seq(1, Rounds)],
    done.

act(1, Mods) ->
    with(Mods, fun(Inst) -> fine([{ok, [8]}], wasmtime:call(Inst, <<"one">>, [7])) end);
act(2, Mods) ->
    with(Mods, fun(Inst) ->
        Calls = [caller(fun() -> wasmtime:call(Inst, <<"sum">>, [20]) end) || _ <- [1, 2, 3]],
        [receive {Pid, Result} -> fine([{ok, [210]}], Result) after 20_000 -> error({stuck, wasmtime:info(Inst)}) end
         || {Pid, _} <- Calls]
    end);
act(3, #{loop := Mod}) ->
    case wasmtime_test:instantiate(Mod, #{{"env", "tick"} => fun(_, []) -> {ok, []} end}) of
        {ok, Inst} ->
            fine([timeout], wasmtime:call(Inst, <<"spin">>, [], #{timeout => 2})),
            ok = wasmtime:destroy(Inst);
        Error -> fine([], Error)
    end;
act(4, Mods) ->
    with(Mods, fun(Inst) ->
        {Pid, Monitor} = caller(fun() -> wasmtime:call(Inst, <<"sum">>, [100_000]) end),
        exit(Pid, kill),
        receive {'DOWN', Monitor, _, _, _} -> ok end,
        fine([{ok, [4]}], wasmtime:call(Inst, <<"double">>, [2]))
    end);
act(5, Mods) ->
    case host(Mods) of
        {ok, Inst} ->
            fine([ok], wasmtime:write_memory(Inst, 7, <<1>>)),
            fine([{ok, [8]}], wasmtime:call(Inst, <<"one">>, [7]));
        Error -> fine([], Error)
    end.

with(Mods, Fun) ->
    case host(Mods) of
        {ok, Inst} -> Fun(Inst), ok = wasmtime:destroy(Inst);
        Error -> fine([], Error)
    end.

%% The right answer, a panic, or what a panic elsewhere leaves: an instance that is gone, a full pool.
fine(_, ?PANIC) -> ok;
fine(_, ?GONE) -> ok;
fine(_, ?WASMTIME_ERROR(pool, pool_exhausted)) -> ok;
fine([timeout], ?WASMTIME_TRAP(timeout)) -> ok;
fine(Right, Result) -> ?assertEqual({true, Result}, {lists:member(Result, Right), Result}).
