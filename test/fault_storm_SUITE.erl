%% Kills at random moments, by the ten thousand: callers, hosts, receivers of streams, pools, servers and
%% who owns them. Who lives is answered, and nothing is left behind.
-module(fault_storm_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, inst/2, one/1]).
-import(fault_test, [storm/3, moment/0, kill/2, ended/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% What a killed owner takes along says so, a thousand times.
init_per_suite(Config) ->
    ok = logger:set_module_level([gen_server, proc_lib], none),
    Config.

end_per_suite(_) -> logger:unset_module_level([gen_server, proc_lib]).

%% A storm in which at least a third of the kills must hit.
rounds(Quick, Normal, Full, Round) ->
    Rounds = wasmtime_test:rounds(Quick, Normal, Full),
    storm(Rounds, Rounds div 3, Round).

%% Callers with an instance of their own, in a pool whose every reset is checked.
t_callers(_) ->
    Pool = wasmtime_test:pool(#{instances => 200}),
    #{loop := Loop, wasi := Wasi} = Mods = maps:from_list([{Name, mod(Name, Pool)} || Name <- [host, loop, wasi]]),
    %% The first sleep of a node opens files that stay.
    Sleeper = inst(Wasi, #{wasi => #{}}),
    {ok, _} = timeout_SUITE:sleep(Sleeper, 1, #{}),
    ok = wasmtime:destroy(Sleeper),
    Result = rounds(300, 5000, 70_000, fun(Kills) ->
        What = rand:uniform(6),
        Victim = spawn_monitor(fun() -> call(What, Mods) end),
        moment(),
        kill(Victim, Kills)
    end),
    ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Loop)),
    %% No place was lost: not of memories alone.
    [ok = wasmtime:destroy(Inst) || Inst <- [looping(Loop) || _ <- lists:seq(1, 200)]],
    Result.

%% Does something without end.
call(1, #{loop := Mod}) ->
    wasmtime:call(looping(Mod), <<"spin">>, []);
call(2, #{loop := Mod}) ->
    wasmtime:call(looping(Mod), <<"tick">>, []);
call(3, #{wasi := Mod}) ->
    Inst = inst(Mod, #{wasi => #{}}),
    timeout_SUITE:sleep(Inst, 60_000, #{});
call(4, #{host := Mod} = Mods) ->
    Inst = inst(Mod, one(fun(I, [X]) -> wasmtime:call(I, <<"double">>, [X]) end)),
    {ok, _} = wasmtime:call(Inst, <<"sum">>, [50]),
    call(4, Mods);
call(5, #{loop := Mod} = Mods) ->
    Inst = looping(Mod),
    ok = wasmtime:write_memory(Inst, rand:uniform(60_000), <<1, 2, 3>>),
    {ok, [1]} = wasmtime:call(Inst, <<"ok">>, []),
    ok = wasmtime:destroy(Inst),
    call(5, Mods);
call(6, #{loop := Mod}) ->
    Inst = looping(Mod),
    {ok, Call} = wasmtime:call_async(Inst, <<"spin">>, []),
    wasmtime:await(Inst, Call).

looping(Mod) -> inst(Mod, #{{"env", "tick"} => fun(_, []) -> {ok, []} end}).

%% Callers that queue at one instance: those that live get their results.
t_queues(_) ->
    Mod = mod(host),
    rounds(100, 1500, 20_000, fun(Kills) ->
        Inst = inst(Mod, one(fun(_, [X]) -> {ok, [X]} end)),
        Sum = fun() -> exit(wasmtime:call(Inst, <<"sum">>, [20])) end,
        Forever = fun() -> wasmtime:call(Inst, <<"sum">>, [-1]) end,
        Callers = [spawn_monitor(F) || F <- [Sum, Forever, Sum, Forever, Sum]],
        moment(),
        [kill(lists:nth(N, Callers), Kills) || N <- [4, 2]],
        [?assertEqual({ok, [190]}, ended(lists:nth(N, Callers))) || N <- [1, 3, 5]],
        ok = wasmtime:destroy(Inst)
    end).

%% Processes that serve the host calls of others: the callers hear of it at once.
t_hosts(_) ->
    Mod = mod(host),
    rounds(100, 2000, 30_000, fun(Kills) ->
        Host = {Pid, _} = spawn_monitor(fun host_process_SUITE:serve_all/0),
        Nested = fun(I, [X]) -> wasmtime:call(I, <<"double">>, [X]) end,
        Inst = inst(Mod, (one(Nested))#{host => Pid, host_timeout => infinity}),
        ok = host_process_SUITE:tell(Pid, Inst),
        Callers = [spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"sum">>, [-1])) end) || _ <- [1, 2]],
        moment(),
        _ = [kill(hd(Callers), Kills) || rand:uniform(4) =:= 1],
        kill(Host, Kills),
        [?assertMatch(?WASMTIME_ERROR(host, host_down), ended(Caller)) || Caller <- tl(Callers)],
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"double">>, [2])),
        ok = wasmtime:destroy(Inst)
    end).

%% Processes that get streams: the guest goes on, and so does its caller.
t_receivers(_) ->
    Mod = mod(channel),
    rounds(100, 2000, 30_000, fun(Kills) ->
        Receiver = {Pid, _} = spawn_monitor(fun stream_storm_SUITE:drain/0),
        Inst = inst(Mod, stream_SUITE:with_host(#{stream => Pid})),
        Caller = spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"count">>, [1000])) end),
        moment(),
        kill(Receiver, Kills),
        ?assertEqual({ok, []}, ended(Caller)),
        ok = wasmtime:destroy(Inst)
    end).

%% Pools, or their owners, with requests that run and wait: each caller is answered.
t_pools(_) ->
    %% An owner's death is an orderly end, which would wait for requests without end.
    Opts = wasmtime_pool_test:opts(#{module => mod(service), size => 2, max_queue => 3, queue_timeout => infinity,
                                     drain_timeout => 2}),
    rounds(100, 1500, 20_000, fun(Kills) ->
        Owner = owner(wasmtime_pool, Opts),
        Pool = started(Owner),
        Callers = [spawn_monitor(fun() -> exit(wasmtime_pool:request(Pool, Name, Args)) end)
                   || {Name, Args} <- requests(4)],
        moment(),
        end_of(Owner, Pool, hd(Callers), Kills),
        [answered(ended(Caller)) || Caller <- tl(Callers)]
    end).

%% The same with servers.
t_servers(_) ->
    Opts = server_SUITE:opts(fun(X) -> X end, #{module => mod(service)}),
    rounds(100, 1500, 20_000, fun(Kills) ->
        Owner = owner(wasmtime_server, Opts),
        Server = started(Owner),
        Callers = [spawn_monitor(fun() -> exit(wasmtime_server:call(Server, Name, Args)) end)
                   || {Name, Args} <- requests(4)],
        moment(),
        end_of(Owner, Server, hd(Callers), Kills),
        [answered(ended(Caller)) || Caller <- tl(Callers)]
    end).

%% A process that starts a pool or a server, and is linked to it.
owner(Module, Opts) ->
    Self = self(),
    spawn_monitor(fun() ->
        {ok, Pid} = Module:start_link(Opts),
        Self ! {self(), Pid},
        receive never -> ok end
    end).

started({Owner, _}) -> receive {Owner, Pid} -> Pid end.

requests(N) ->
    lists:nthtail(10 - N, [R || {_, R} <- lists:sort([{rand:uniform(), R} || R <- all_requests()])]).

all_requests() ->
    lists:append(lists:duplicate(2, [{"count", []}, {"ask", [7]}, {"spin", []}, {"trap", []}, {"spin", []}])).

%% A caller may go first; then the server, or its owner, which takes it along.
end_of(Owner, Server, Caller, Kills) ->
    _ = [kill(Caller, Kills) || rand:uniform(2) =:= 1],
    Monitor = monitor(process, Server),
    case rand:uniform(2) of
        1 -> kill(Owner, Kills), receive {'DOWN', Monitor, _, _, _} -> ok end;
        2 -> kill({Server, Monitor}, Kills), ended(Owner)
    end.

answered({ok, [N]}) -> ?assert(N =:= 1 orelse N =:= 7 orelse N < 10);
answered(?WASMTIME_TRAP(unreachable)) -> ok;
answered(?WASMTIME_ERROR(pool, closed)) -> ok;
answered(?WASMTIME_ERROR(pool, overload)) -> ok;
answered(?WASMTIME_ERROR(call, destroyed)) -> ok;
answered(Other) -> error({answered, Other}).
