%% wasmtime_pool as a process: options, names, supervision, drain and swap. However it ends, what ran in it
%% does.
-module(pool_life_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1, wait_until/1, settled/0]).
-import(wasmtime_pool_test, [version/1, instance/1, opts/1, opts/2, start/1, start/2, stats/1, until/3, holder/1, holders/2, go/1, settled_after/1, artifact/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% ---- drain and swap -------------------------------------------------------------------------

%% A drain refuses what comes, lets what runs and what waits finish, and then answers.
t_drain(_) ->
    Pool = start(#{size => 1}),
    [First, Second] = holders(Pool, 2),
    until(Pool, 1, 1),
    {Drainer, _} = caller(fun() -> wasmtime_pool:drain(Pool, infinity) end),
    wait_until(fun() -> map_get(state, stats(Pool)) =:= closed end),
    ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:request(Pool, "count", [])),
    ?assertEqual([held, held], go([First, Second])),
    receive {Drainer, Result} -> ?assertEqual({ok, 0}, Result) end,
    ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:run(Pool, fun(_) -> ok end)),
    ?assertEqual({ok, 0}, wasmtime_pool:drain(Pool)),
    ?assertMatch(#{in_flight := 0, waiting := 0, done := 2, overloaded := 0}, stats(Pool)),
    [?assertMatch(?WASMTIME_BADARG(timeout), wasmtime_pool:drain(Pool, Bad)) || Bad <- [-1, x]],
    ok = wasmtime_pool:stop(Pool).

%% When its time is up a drain refuses those that wait and ends those that run, wherever they are.
t_drain_by_force(_) ->
    Mod = mod(service),
    settled_after(fun() ->
        Pool = start(fun(_) -> timer:sleep(infinity) end,
                     #{module => Mod, size => 3, drain_timeout => 0, queue_timeout => infinity}),
        Self = self(),
        Call = fun(Name, Args) -> caller(fun() -> wasmtime_pool:request(Pool, Name, Args) end) end,
        {Spins, _} = Call("spin", []),
        {Asks, _} = Call("ask", [1]),
        {Idles, _} = caller(fun() ->
            wasmtime_pool:run(Pool, fun(I) -> Self ! in, receive go -> wasmtime:call(I, "count", []) end end)
        end),
        receive in -> ok end,
        until(Pool, 3, 0),
        {Waits, _} = Call("count", []),
        until(Pool, 3, 1),
        ?assertEqual({ok, 3}, wasmtime_pool:drain(Pool, 20)),
        ?assertMatch(#{state := ended, in_flight := 0, waiting := 0}, stats(Pool)),
        receive {Spins, R1} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), R1) end,
        receive {Waits, R2} -> ?assertMatch(?WASMTIME_ERROR(pool, closed), R2) end,
        Idles ! go,
        receive {Idles, R3} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), R3) end,
        %% A host function that hangs is its process's own; its instance is gone all the same.
        exit(Asks, kill),
        ?assertEqual({ok, 0}, wasmtime_pool:drain(Pool, 0)),
        ok = wasmtime_pool:stop(Pool)
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% A swap under load drops no request: each is answered by one of the two, and after the swap by the new
%% one. The old module is freed when its last request ended.
t_swap(_) ->
    [Old, New] = [{file, artifact(version(V))} || V <- [2001, 2002]],
    Before = maps:get(modules, settled()),
    Pool = start(#{module => Old, size => 2, max_queue => 100, queue_timeout => infinity}),
    Version = fun() -> {ok, [V]} = wasmtime_pool:request(Pool, "version", []), V end,
    2001 = Version(),
    Holders = holders(Pool, 1),
    Stop = atomics:new(1, []),
    Callers = [caller(fun() -> versions(Version, Stop, []) end) || _ <- lists:seq(1, 6)],
    timer:sleep(20),
    ?assertEqual(ok, wasmtime_pool:swap(Pool, New)),
    ?assertEqual(2002, Version()),
    ?assertEqual(Before + 2, maps:get(modules, settled())),
    atomics:put(Stop, 1, 1),
    [receive {Pid, Seen} -> ?assertEqual([2001, 2002], Seen) end || {Pid, _} <- Callers],
    [held] = go(Holders),
    ?assertEqual(Before + 1, maps:get(modules, settled())),
    ?assertMatch(#{failed := 0, overloaded := 0}, stats(Pool)),
    ok = wasmtime_pool:stop(Pool),
    ?assertEqual(Before, maps:get(modules, settled())).

%% What a caller saw, each once, in order; it stops once told so and after the new one was seen.
versions(Version, Stop, Seen) ->
    Next = case Version() of
        V when Seen =/= [], V =:= hd(Seen) -> Seen;
        V -> [V | Seen]
    end,
    case atomics:get(Stop, 1) of
        1 when hd(Next) =:= 2002 -> lists:reverse(Next);
        _ -> versions(Version, Stop, Next)
    end.

%% Who waits while the module is swapped gets the new one; an error leaves everything as it is; instance
%% options may be swapped, too.
t_swap_while_waiting(_) ->
    Pool = start(#{size => 1}),
    Holders = holders(Pool, 1),
    {Pid, _} = caller(fun() -> wasmtime_pool:request(Pool, "version", []) end),
    until(Pool, 1, 1),
    ?assertEqual(ok, wasmtime_pool:swap(Pool, mod(version(1005)))),
    [held] = go(Holders),
    receive {Pid, Result} -> ?assertEqual({ok, [1005]}, Result) end,
    [?assertMatch({error, #{class := Class, kind := Kind}}, wasmtime_pool:swap(Pool, Source))
     || {Class, Kind, Source} <- [{pool, badarg, nonsense}, {pool, badarg, make_ref()},
                                  {compile, file, {file, "/nonexistent"}},
                                  {link, unknown_import, mod(host)}]],
    ?assertMatch(?WASMTIME_ERROR(instantiate, badarg), wasmtime_pool:swap(Pool, mod(service), #{x => 1})),
    ?assertEqual({ok, [1005]}, wasmtime_pool:request(Pool, "version", [])),
    ?assertEqual(ok, wasmtime_pool:swap(Pool, mod(version(1006)), instance(fun(X) -> -X end))),
    ?assertEqual({ok, [-3]}, wasmtime_pool:request(Pool, "ask", [3])),
    ?assertEqual(ok, wasmtime_pool:swap(Pool, mod(service))),
    ?assertEqual({ok, [-3]}, wasmtime_pool:request(Pool, "ask", [3])),
    ok = wasmtime_pool:stop(Pool).

%% A pool that is drained takes no other module, whatever that is.
t_swap_of_a_drained_pool(_) ->
    Pool = start(#{}),
    {ok, 0} = wasmtime_pool:drain(Pool),
    [?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:swap(Pool, Source))
     || Source <- [mod(service), {file, "/nonexistent"}]],
    ok = wasmtime_pool:stop(Pool).

%% Limits that no instance could live under are refused at the start and by a swap, which leaves all as it is.
t_impossible_limits(_) ->
    Impossible = maps:put(memory_limit, 1, instance(fun(X) -> X end)),
    ?assertMatch(?WASMTIME_ERROR(limit, memory_limit),
                 wasmtime_pool:start_link(#{module => mod(service), instance => Impossible})),
    Pool = start(#{}),
    ?assertMatch(?WASMTIME_ERROR(limit, memory_limit), wasmtime_pool:swap(Pool, mod(service), Impossible)),
    ?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [])),
    ok = wasmtime_pool:stop(Pool).

%% Modules that were swapped out go, also while the pool, or a server, has nothing to do.
t_swapped_out(_) ->
    File = {file, artifact(version(3001))},
    Before = maps:get(modules, settled()),
    Opts = #{module => File, instance => instance(fun(X) -> X end)},
    {ok, Pool} = wasmtime_test:in_process(fun() -> unlinked(wasmtime_pool:start_link(Opts)) end),
    {ok, Server} = wasmtime_test:in_process(fun() -> unlinked(wasmtime_server:start_link(Opts)) end),
    [ok = wasmtime_test:in_process(fun() -> Swap(Process, File) end)
     || _ <- lists:seq(1, 10), {Swap, Process} <- [{fun wasmtime_pool:swap/2, Pool}, {fun wasmtime_server:swap/2, Server}]],
    wait_until(fun() -> maps:get(modules, wasmtime_nif:live()) =:= Before + 2 end),
    ?assertEqual({ok, [3001]}, wasmtime_pool:request(Pool, "version", [])),
    ?assertEqual({ok, [3001]}, wasmtime_server:call(Server, "version", [])),
    ok = wasmtime_server:stop(Server),
    ok = wasmtime_pool:stop(Pool).

unlinked({ok, Pid} = Started) -> unlink(Pid), Started.

%% ---- life -----------------------------------------------------------------------------------

%% A supervisor stops a pool after what runs has finished, and starts one that was killed anew, from its
%% file. What ran in the killed one ends with `destroyed', and nothing of it is left.
t_supervised(_) ->
    Opts = opts(#{name => supervised, module => {file, artifact(version(1001))}, drain_timeout => infinity}),
    #{id := supervised, shutdown := infinity} = Spec = wasmtime_pool:child_spec(maps:to_list(Opts)),
    ?assertEqual(ok, supervisor:check_childspecs([Spec])),
    ?assertMatch(#{shutdown := 6000}, wasmtime_pool:child_spec(maps:remove(drain_timeout, Opts))),
    {ok, Sup} = server_SUITE:supervisor_of([Spec]),
    {Spins, _} = caller(fun() -> wasmtime_pool:request(supervised, "spin", []) end),
    {Idles, _} = caller(fun() -> wasmtime_pool:run(supervised, fun(_) -> receive go -> ok end end) end),
    until(supervised, 2, 0),
    Old = whereis(supervised),
    exit(Old, kill),
    receive {Spins, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end,
    Idles ! go,
    receive {Idles, Idle} -> ?assertEqual(ok, Idle) end,
    wait_until(fun() -> element(1, wasmtime_pool:stats(supervised)) =:= ok end),
    ?assertEqual({ok, [1001]}, wasmtime_pool:request(supervised, "version", [])),
    ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:request(Old, "version", [])),
    ?assertEqual(none, persistent_term:get({wasmtime_pool, Old}, none)),
    Holder = holder(supervised),
    until(supervised, 1, 0),
    {Stopper, _} = caller(fun() -> server_SUITE:stop(Sup) end),
    wait_until(fun() -> map_get(state, stats(supervised)) =:= closed end),
    ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:request(supervised, "version", [])),
    ?assertEqual([held], go([Holder])),
    receive {Stopper, ok} -> ok end,
    ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:request(supervised, "version", [])).

%% A pool that is killed with many requests under way leaves nothing.
t_killed(_) ->
    Mod = mod(service),
    settled_after(fun() ->
        [begin
             Pool = start(#{module => Mod, size => 4, max_queue => 8, queue_timeout => infinity}),
             Calls = [caller(fun() -> wasmtime_pool:request(Pool, "spin", []) end) || _ <- lists:seq(1, 10)],
             until(Pool, 4, 6),
             exit(Pool, kill),
             Results = [receive {Pid, {error, #{kind := Kind}}} -> Kind end || {Pid, _} <- Calls],
             ?assertEqual([closed || _ <- lists:seq(1, 6)] ++ [destroyed || _ <- lists:seq(1, 4)],
                          lists:sort(Results))
         end || _ <- lists:seq(1, wasmtime_test:rounds(3, 10, 100))]
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% The keeper of a pool's instances and the pool end together, and so do the requests that run.
t_keeper(_) ->
    Mod = mod(service),
    settled_after(fun() ->
        Pool = start(#{module => Mod, size => 2, drain_timeout => infinity, queue_timeout => infinity}),
        Calls = [caller(fun() -> wasmtime_pool:request(Pool, "spin", []) end) || _ <- [1, 2, 3]],
        until(Pool, 2, 1),
        {links, Links} = process_info(Pool, links),
        [Keeper] = Links -- [self()],
        exit(Keeper, kill),
        receive {'EXIT', Pool, killed} -> ok end,
        Results = [receive {Pid, {error, #{kind := Kind}}} -> Kind end || {Pid, _} <- Calls],
        ?assertEqual([closed, destroyed, destroyed], lists:sort(Results)),
        ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:stats(Pool)),
        ?assertEqual(none, persistent_term:get({wasmtime_pool, Pool}, none))
    end),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

%% Stopping waits for what runs as long as it may, and then kills.
t_stop(_) ->
    Pool = start(#{drain_timeout => infinity}),
    [Holder] = holders(Pool, 1),
    ?assertEqual(ok, wasmtime_pool:stop(Pool, 20)),
    ?assertMatch(?WASMTIME_ERROR(pool, closed), wasmtime_pool:stats(Pool)),
    ?assertEqual([held], go([Holder])),
    Quick = start(#{drain_timeout => 10}),
    [Other] = holders(Quick, 1),
    ?assertEqual(ok, wasmtime_pool:stop(Quick)),
    ?assertEqual([held], go([Other])).

%% A pool is found by every sort of name on its node; one that is not there is an error, no name is badarg.
t_names(_) ->
    Functions = [fun(P) -> wasmtime_pool:request(P, "count", []) end,
                 fun(P) -> wasmtime_pool:run(P, fun(_) -> ok end) end,
                 fun wasmtime_pool:stats/1, fun wasmtime_pool:drain/1, fun wasmtime_pool:stop/1,
                 fun(P) -> wasmtime_pool:swap(P, mod(service)) end],
    [begin
         Pool = start(#{name => Name}),
         [?assertEqual({ok, [1]}, wasmtime_pool:request(As, "count", [])) || As <- [Pool | Names]],
         ok = wasmtime_pool:stop(hd(Names))
     end || {Name, Names} <- [{here, [here, {local, here}]}, {{global, {a, term}}, [{global, {a, term}}]},
                              {{via, global, other}, [{via, global, other}, {global, other}]}]],
    [?assertMatch(?WASMTIME_ERROR(pool, closed), F(Gone))
     || Gone <- [nobody, {global, nobody}, self(), spawn(fun() -> ok end)], F <- Functions],
    [?assertMatch(?WASMTIME_ERROR(pool, badarg), F({here, 'no@where'})) || F <- Functions],
    [?assertError(badarg, F(Bad)) || Bad <- [1, "here", {a, b, c}, {via, no_such_module, x}, make_ref()],
                                     F <- Functions].

%% A pool and a server that are taken for each other say so, and what is no request at all has an answer.
t_mixed_up(_) ->
    Pool = start(#{}),
    ?assertMatch({error, #{kind := badarg}}, gen_server:call(Pool, nonsense)),
    [?assertMatch(?WASMTIME_ERROR(pool, badarg), F(Pool))
     || F <- [fun(P) -> wasmtime_server:call(P, "count", []) end,
              fun(P) -> wasmtime_server:call(P, "count", [], #{timeout => 5000}) end,
              fun wasmtime_server:instance/1, fun wasmtime_server:interrupt/1, fun wasmtime_server:info/1,
              fun wasmtime_server:reset/1]],
    {ok, Server} = wasmtime_server:start_link(#{module => mod(service), instance => instance(fun(X) -> X end)}),
    ?assertMatch({error, #{kind := badarg}}, gen_server:call(Server, nonsense)),
    [?assertMatch(?WASMTIME_ERROR(pool, closed), F(Server))
     || F <- [fun(P) -> wasmtime_pool:request(P, "count", []) end,
              fun(P) -> wasmtime_pool:run(P, fun(_) -> ok end) end,
              fun wasmtime_pool:stats/1, fun wasmtime_pool:drain/1, fun wasmtime_pool:stop/1,
              fun(P) -> wasmtime_pool:swap(P, mod(service)) end]],
    ?assertEqual({ok, [1]}, wasmtime_server:call(Server, "count", [])),
    ?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [])),
    ok = wasmtime_server:stop(Server),
    ok = wasmtime_pool:stop(Pool).

%% Every wrong option is named, a pool of memories that is too small too; and what the first instance would
%% say is said at the start.
t_options(_) ->
    Good = opts(#{}),
    [?assertMatch({error, #{class := pool, kind := badarg, key := Key, message := <<_, _/binary>>}},
                  wasmtime_pool:start_link(Good#{Key => Value}))
     || {Key, Value} <- [{name, "text"}, {name, {via, no_such_module, x}}, {name, {via, lists, x}},
                         {module, nonsense}, {module, make_ref()}, {instance, []},
                         {size, 0}, {size, 10_001}, {max_queue, -1}, {max_queue, 1_000_001},
                         {queue_timeout, -1}, {timeout, soon}, {drain_timeout, 1.0},
                         {telemetry, fun() -> ok end}, {telemetry, yes}, {init, []}]],
    [?assertMatch({error, #{class := pool, key := Key}}, wasmtime_pool:start_link(Bad))
     || {Key, Bad} <- [{module, #{}}, {options, nonsense}, {options, [a]}]],
    [begin
         ?assertMatch({error, #{class := Class, key := Key}}, wasmtime_pool:start_link(maps:merge(Good, Bad))),
         receive {'EXIT', _, #{key := Key}} -> ok end
     end || {Class, Key, Bad} <- [{instantiate, nonsense, #{instance => #{nonsense => 1}}},
                                  {pool, size, #{module => wasmtime_test:mod(service, wasmtime_test:pool(#{})),
                                                 size => 5}}]],
    ?assertMatch(?WASMTIME_ERROR(link, unknown_import), wasmtime_pool:start_link(Good#{instance => #{}})),
    ?assertMatch(?WASMTIME_ERROR(compile, file), wasmtime_pool:start_link(Good#{module => {file, "/no"}})),
    Exact = start(#{module => wasmtime_test:mod(service, wasmtime_test:pool(#{})), size => 4}),
    ok = wasmtime_pool:stop(Exact),
    Most = start(#{size => 10_000, max_queue => 1_000_000}),
    ?assertEqual({ok, [1]}, wasmtime_pool:request(Most, "count", [])),
    ok = wasmtime_pool:stop(Most).
