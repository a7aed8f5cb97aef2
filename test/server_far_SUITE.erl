%% Servers from afar: callers on other nodes, nodes that do not answer, and processes that are no servers.
-module(server_far_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, caller/1, wait_until/1]).
-import(server_SUITE, [opts/1, opts/2]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% A caller on another node is served by a process on the server's, with the same deadlines, and ends it
%% when it dies.
t_other_node(_) ->
    {Peer, Node} = distributed(),
    {ok, _} = wasmtime_server:start_link(opts(fun(X) -> X + 1 end, #{name => {global, far}})),
    ok = global:sync(),
    Call = fun(Name, Args, Opts) ->
        erpc:call(Node, wasmtime_server, call, [{global, far}, Name, Args, Opts])
    end,
    wait_until(fun() -> is_pid(erpc:call(Node, global, whereis_name, [far])) end),
    ?assertEqual({ok, [4]}, Call("ask", [3], #{})),
    ?assertMatch(?WASMTIME_TRAP(timeout), Call("spin", [], #{timeout => 20})),
    ?assertMatch(?WASMTIME_ERROR(call, badarg),
                 erpc:call(Node, wasmtime_server, instance, [{global, far}])),
    Pid = spawn(Node, wasmtime_server, call, [{global, far}, "spin", [], #{}]),
    wait_until(fun() -> {ok, I} = wasmtime_server:info({global, far}), map_get(in_flight, I) =:= 1 end),
    exit(Pid, kill),
    ?assertEqual({ok, [1]}, wasmtime_server:call({global, far}, "count", [], #{timeout => 5000})),
    ok = wasmtime_server:stop({global, far}),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime_server:call({nobody, Node}, "count", [])),
    peer:stop(Peer),
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime_server:call({nobody, Node}, "count", [])),
    ok = net_kernel:stop().

distributed() ->
    _ = os:cmd("epmd -daemon"),
    Name = list_to_atom("wasmtime_" ++ os:getpid() ++ "@127.0.0.1"),
    {ok, _} = net_kernel:start(Name, #{name_domain => longnames}),
    {ok, Peer, Node} = peer:start_link(#{name => peer:random_name(), host => "127.0.0.1", longnames => true,
                                         args => ["-setcookie", atom_to_list(erlang:get_cookie()),
                                                  "-pa" | code:get_path()]}),
    {Peer, Node}.

%% A call to a node that does not answer ends with its time; what was given up so never runs, whenever the node
%% goes on.
t_stopped_node(_) ->
    {Peer, Node} = distributed(),
    OsPid = erpc:call(Node, os, getpid, []),
    Self = self(),
    _ = spawn(Node, ?MODULE, hold, [Self, persistent_term:get(wasmtime_test, thread)]),
    Far = receive {far, Server} -> Server end,
    ?assertEqual({ok, [1]}, wasmtime_server:call(Far, "count", [], #{timeout => 10_000})),
    _ = os:cmd("kill -STOP " ++ OsPid),
    [?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_server:call(Far, "count", [], #{timeout => Ms}))
     || Ms <- [0, 1, 50]],
    _ = os:cmd("kill -CONT " ++ OsPid),
    ?assertEqual({ok, [2]}, wasmtime_server:call(Far, "count", [], #{timeout => 60_000})),
    %% One that runs is ended with its time as well.
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime_server:call(Far, "spin", [], #{timeout => 100})),
    wait_until(fun() -> {ok, #{in_flight := N}} = wasmtime_server:info(Far), N =:= 0 end),
    ?assertEqual([], [M || M <- wasmtime_test:mailbox(), element(1, M) =/= 'EXIT']),
    peer:stop(Peer),
    ok = net_kernel:stop().

%% On the other node: a server, and its starter, which stays.
hold(Pid, Runner) ->
    wasmtime_test:use(Runner),
    {ok, Server} = wasmtime_server:start_link(opts(fun ?MODULE:same/1)),
    Pid ! {far, Server},
    timer:sleep(infinity).

same(X) -> X.

%% A process that is no server is told from one that is busy, and is not ended by `stop', on this node and on
%% another.
t_strangers(_) ->
    {Peer, Node} = distributed(),
    Here = spawn(fun() -> timer:sleep(infinity) end),
    There = spawn(Node, timer, sleep, [infinity]),
    true = register(stranger, Here),
    Requests = [fun wasmtime_server:info/1, fun wasmtime_server:interrupt/1, fun wasmtime_server:reset/1,
                fun(S) -> wasmtime_server:swap(S, mod(service)) end, fun wasmtime_server:stop/1],
    Calls = [fun(S) -> wasmtime_server:call(S, "count", []) end,
             fun(S) -> wasmtime_server:call(S, "count", [], #{timeout => 60_000}) end],
    [?assertMatch({error, #{class := call, kind := badarg, key := server}}, F(S))
     || {S, Fs} <- [{Here, Requests ++ Calls}, {stranger, Requests ++ Calls}, {whereis(kernel_sup), Requests},
                    {There, Requests ++ Calls}, {{init, Node}, Requests ++ Calls}], F <- Fs],
    ?assert(is_process_alive(Here)),
    ?assert(erpc:call(Node, erlang, is_process_alive, [There])),
    exit(Here, kill),
    peer:stop(Peer),
    ok = net_kernel:stop().
