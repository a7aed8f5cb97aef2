%% What runs out: places of the pool, address space, threads, open files, memory of the control group.
%% Rule: each answers an error with its kind, the VM lives, and when there is some again everything works
%% and nothing is left behind. What the system limits is limited in a VM of its own.
-module(exhaustion_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, wait_until/1]).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% Runs a function of this module with each runner in a VM of its own, after commands of the shell.
in_node(Function, Args, Shell) ->
    fault_test:start_node({?MODULE, node, [Function, Args]}, Shell).

node(Function, Args) ->
    [begin
         wasmtime_test:use(Runner),
         apply(?MODULE, Function, Args)
     end || {group, Runner} <- wasmtime_test:both()].

%% ---- the pool -------------------------------------------------------------------------------

%% More processes want instances than the pool has places: each has one or is told, and at no time are
%% there more.
t_pool(_) ->
    [begin
         wasmtime_test:use(Runner),
         wasmtime_test:with_pool(memory, #{instances => 4}, fun crowd/1)
     end || {group, Runner} <- wasmtime_test:both()].

crowd(Mod) ->
    Live = counters:new(2, []),
    Pids = [spawn_monitor(fun() -> exit(tenant(Mod, Live, wasmtime_test:rounds(20, 100, 1000))) end)
            || _ <- lists:seq(1, 20)],
    Refused = lists:sum([fault_test:ended(Pid) || Pid <- Pids]),
    ?assert(Refused > 0),
    Four = [wasmtime_test:inst(Mod, #{}) || _ <- [1, 2, 3, 4]],
    ?assertMatch(?WASMTIME_ERROR(pool, pool_exhausted), wasmtime_test:instantiate(Mod)),
    [ok = wasmtime:destroy(Inst) || Inst <- Four].

tenant(_, _, 0) -> 0;
tenant(Mod, Live, N) ->
    Refused = case wasmtime_test:instantiate(Mod) of
        {ok, Inst} ->
            counters:add(Live, 1, 1),
            ?assert(counters:get(Live, 1) =< 4),
            ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"count">>, [])),
            ok = wasmtime:write_memory(Inst, rand:uniform(60_000), <<"mine">>),
            erlang:yield(),
            counters:sub(Live, 1, 1),
            ok = wasmtime:destroy(Inst),
            0;
        ?WASMTIME_ERROR(pool, pool_exhausted) ->
            1
    end,
    Refused + tenant(Mod, Live, N - 1).

%% ---- address space --------------------------------------------------------------------------

%% Where no more memory can be mapped: pools and instances are refused, those there are go on.
t_address_space(_) ->
    ?assertEqual([ok, ok], in_node(address_space, [], "ulimit -v 40000000; ")).

address_space() ->
    Mod = mod(loop),
    undisturbed(fun() ->
        ?assertMatch(?WASMTIME_ERROR(compile, pool_too_large),
                     wasmtime:compile(wasmtime_test:source(loop), wasmtime_test:pool(#{instances => 100}))),
        {Insts, Error} = until_refused(fun() -> loop(Mod) end, []),
        ?assertMatch(?WASMTIME_ERROR(instantiate, out_of_memory), Error),
        ?assert(length(Insts) > 1),
        [?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])) || Inst <- Insts],
        [?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(Inst, <<"spin">>, [], #{timeout => 2}))
         || Inst <- Insts],
        [ok = wasmtime:destroy(Inst) || Inst <- Insts]
    end, Mod).

%% Where there are addresses for a pool's slots, and for none to spare, it works as any.
t_spare_slots(_) ->
    ?assertEqual([ok, ok], in_node(spare_slots, [], "ulimit -v 40000000; ")).

spare_slots() ->
    wasmtime_test:in_process(fun tight_pool/0),
    _ = wasmtime_test:settled(),
    ok.

tight_pool() ->
    Mod = mod({wat, "(module (memory (export \"memory\") 8))"}, wasmtime_test:pool(#{instances => 8})),
    [begin
         {ok, Inst} = wasmtime:instantiate(Mod, #{runner => scheduler}),
         ?assertEqual({ok, <<0>>}, wasmtime:read_memory(Inst, 7, 1)),
         ok = wasmtime:write_memory(Inst, 7, <<1>>),
         ok = wasmtime:destroy(Inst),
         ?assertMatch(#{used := 0, restoring := 0, warm := 1, verify_failures := 0}, wasmtime:pool_info(Mod))
     end || _ <- lists:seq(1, 20)].

loop(Mod) -> wasmtime_test:instantiate(Mod, #{{"env", "tick"} => fun(_, []) -> timer:sleep(infinity) end}).

until_refused(Make, Made) ->
    case Make() of
        {ok, One} -> until_refused(Make, [One | Made]);
        Error -> {Made, Error}
    end.

%% Does it twice; the second time takes nothing that the first did not, and then all works.
undisturbed(Fun, Mod) ->
    fault_test:returns(Fun),
    {ok, Inst} = loop(Mod),
    ?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])),
    ok = wasmtime:destroy(Inst),
    {ok, _} = wasmtime:compile(wasmtime_test:source(loop)),
    ok.

%% ---- threads --------------------------------------------------------------------------------

%% Where the system refuses threads: the guests that have one go on, others are told, and those of the
%% scheduler runner need none. The compiler is told, too, and recovers, though it never had its threads.
t_threads(Config) ->
    {ok, Bin} = wasmtime:serialize(mod(loop)),
    File = wasmtime_test:write(wasmtime_test:temp(Config, "threads"), "loop.cwasm", Bin),
    ok = file:change_mode(File, 8#644),
    {Shell, Group} = few_threads(),
    try
        ?assertEqual(ok, fault_test:start_node({?MODULE, threads, [File, Group]}, Shell))
    after
        Group =:= none orelse no_group(Group)
    end.

-define(THREADS, 60).

%% What limits threads here. Root is bound by a control group, or becomes somebody else.
few_threads() ->
    case {os:cmd("id -u"), group("pids")} of
        {"0\n", {ok, Dir}} ->
            allow(Dir, ?THREADS),
            {"echo $$ > " ++ Dir ++ "/cgroup.procs; ", Dir};
        {"0\n", none} ->
            {"ulimit -Su " ++ integer_to_list(?THREADS) ++ "; HOME=/tmp; export HOME; "
             "set -- setpriv --reuid 61234 --regid 61234 --clear-groups \"$0\" \"$@\"; exec \"$@\"; ", none};
        _ ->
            {"ulimit -Su $(($(ps -L -u $(id -u) --no-headers | wc -l) + " ++ integer_to_list(?THREADS) ++ ")); ",
             none}
    end.

allow(Group, Threads) ->
    ok = file:write_file(filename:join(Group, "pids.max"), integer_to_list(Threads)).

threads_of(Group) ->
    {ok, Text} = file:read_file(filename:join(Group, "pids.current")),
    binary_to_integer(string:trim(Text)).

%% A guest that keeps its thread: it waits for a host call that nobody serves.
waiting(Mod) ->
    {ok, Inst} = wasmtime_test:instantiate(Mod, #{{"env", "tick"} => fun(_, []) -> {ok, []} end,
                                                  host_timeout => infinity}),
    {ok, Call} = wasmtime:call_async(Inst, <<"tick">>, []),
    receive
        {wasmtime_result, _, Call, {error, Reason}} -> wasmtime:destroy(Inst), {error, Reason}
    after 0 ->
        {ok, {Inst, Call}}
    end.

threads(File, Group) ->
    {ok, Mod} = wasmtime:deserialize_file(File),
    wasmtime_test:use(scheduler),
    {ok, Other} = loop(Mod),
    wasmtime_test:use(thread),
    Wat = wasmtime_test:source(add),
    Group =:= none orelse compiler_alone(Wat, Group),
    {All, Error} = until_refused(fun() -> waiting(Mod) end, []),
    ?assertMatch(?WASMTIME_ERROR(limit, thread_limit), Error),
    ?assert(length(All) > 3),
    [?assertMatch({_, ?WASMTIME_ERROR(limit, thread_limit)}, {none_left, Do()})
     || Do <- [fun() -> waiting(Mod) end, fun() -> wasmtime:compile(Wat) end,
               fun() -> wasmtime:wat2wasm(element(2, Wat)) end]],
    ?assertEqual({ok, [1]}, wasmtime:call(Other, <<"ok">>, [])),
    [wait_until(fun() -> maps:get(state, wasmtime:info(Inst)) =:= host_call end) || {Inst, _} <- All],
    [?assertEqual(ok, wasmtime:interrupt(Inst)) || {Inst, _} <- All],
    [receive {wasmtime_result, _, Call, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end
     || {_, Call} <- All],
    [?assertEqual({ok, [1]}, wasmtime:call(Inst, <<"ok">>, [])) || {Inst, _} <- All],
    [ok = wasmtime:destroy(Inst) || {Inst, _} <- All],
    %% Threads stay parked for ten seconds, in case that guests come: a limit may be lifted sooner.
    Group =:= none orelse allow(Group, 10 * ?THREADS),
    wasmtime_test:wait_until(fun() -> element(1, wasmtime:compile(Wat)) =:= ok end, 60_000),
    ok = wasmtime:destroy(Other),
    ?assertMatch(#{instances := 0, stores := 0, slots := 0, jobs := 0, threads_running := 0}, wasmtime_test:settled()),
    ok.

%% One thread is left: enough to ask for the compiler's, and not for those.
compiler_alone(Wat, Group) ->
    allow(Group, threads_of(Group) + 1),
    [?assertMatch(?WASMTIME_ERROR(limit, thread_limit), wasmtime:compile(Wat)) || _ <- [1, 2]],
    allow(Group, ?THREADS).

%% ---- processes ------------------------------------------------------------------------------

%% Where the node has no room for another process: an asynchronous call that needs one is refused, and
%% nothing of it is in the way of calls that come then.
t_processes(_) ->
    ?assertEqual([ok, ok], in_node(processes, [], "ERL_FLAGS='+P 2000'; export ERL_FLAGS; ")).

processes() ->
    Mod = mod(loop),
    undisturbed(fun() ->
        {ok, Inst} = loop(Mod),
        Others = until_no_room([]),
        Async = wasmtime:call_async(Inst, <<"ok">>, []),
        Called = wasmtime:call(Inst, <<"ok">>, []),
        Interrupted = wasmtime:interrupt(Inst),
        [begin exit(Pid, kill), receive {'DOWN', Monitor, _, _, killed} -> ok end end
         || {Pid, Monitor} <- Others],
        case {maps:get(runner, wasmtime:info(Inst)), Async} of
            {thread, {ok, Call}} -> ?assertEqual({ok, [1]}, wasmtime:await(Inst, Call));
            {scheduler, _} -> ?assertMatch(?WASMTIME_ERROR(limit, process_limit), Async)
        end,
        ?assertEqual({{ok, [1]}, not_running, []}, {Called, Interrupted, wasmtime_test:mailbox()}),
        ?assertEqual({ok, [1]}, wasmtime_test:in_process(fun() -> wasmtime:call(Inst, <<"ok">>, []) end)),
        ok = wasmtime:destroy(Inst)
    end, Mod).

until_no_room(Others) ->
    try spawn_monitor(fun() -> receive never -> ok end end) of
        Other -> until_no_room([Other | Others])
    catch
        error:system_limit -> Others
    end.

%% ---- open files -----------------------------------------------------------------------------

%% Where no file can be opened: what needs one is told, guests that need none go on. The clock that
%% sleeps are measured by, which needs files when it is first used, is there later all the same.
t_files(_) ->
    ?assertEqual([ok, ok], in_node(files, [], "ulimit -n 64; ")).

files() ->
    %% Code is in files, too.
    _ = application:load(wasmtime),
    {ok, Own} = application:get_key(wasmtime, modules),
    [{module, _} = code:ensure_loaded(Module) || Module <- [timeout_SUITE, string | Own]],
    {Mod, Sleeper} = {mod(loop), mod(wasi)},
    {ok, Live} = loop(Mod),
    {ok, Sleepy} = wasmtime_test:instantiate(Sleeper, #{wasi => #{}}),
    {Wat, {ok, Code}} = {wasmtime_test:source(memory), wasmtime:serialize(mod(memory))},
    undisturbed(fun() ->
        Files = take_files(),
        Errors = [wasmtime_test:instantiate(Sleeper, #{wasi => #{dirs => [{"/", "/tmp", read}]}}),
                  wasmtime_test:instantiate(Sleeper, #{wasi => #{stdin => {file, "/dev/null"}}}),
                  wasmtime:deserialize(Code),
                  wasmtime:deserialize_file("/nonexistent"),
                  wasmtime:compile(Wat)],
        [?assertMatch({N, {error, #{class := Class}}} when Class =/= internal, {N, Error})
         || {N, Error} <- lists:zip(lists:seq(1, 5), Errors)],
        ?assertEqual({ok, [1]}, wasmtime:call(Live, <<"ok">>, [])),
        Slept = timeout_SUITE:sleep(Sleepy, 1, #{}),
        ?assert(lists:member(Slept, [slept()]) orelse element(1, Slept) =:= error, Slept),
        {ok, New} = loop(Mod),
        ?assertEqual({ok, [1]}, wasmtime:call(New, <<"ok">>, [])),
        ok = wasmtime:destroy(New),
        [ok = file:close(File) || File <- Files],
        ?assertEqual(slept(), timeout_SUITE:sleep(Sleepy, 1, #{})),
        ?assertMatch(#{pagemap_scan := _}, wasmtime:features())
    end, Mod),
    ok = wasmtime:destroy(Live),
    ok = wasmtime:destroy(Sleepy).

slept() -> {ok, [0]}.

take_files() ->
    case file:open("/dev/null", [read, raw]) of
        {ok, File} -> [File | take_files()];
        {error, emfile} -> []
    end.

%% ---- the control group ----------------------------------------------------------------------

%% Guests that use up what their limits allow, in a group that allows just that: growth is refused at the
%% limits, and what a guest had is given back before the next needs it. (Beyond its group's limit the
%% kernel kills a process: no call fails before. See docs/reliability.md.)
t_control_group(_) ->
    case {os:cmd("id -u"), group("memory")} of
        {"0\n", {ok, Dir}} ->
            try
                Limit = 400 * 1024 * 1024,
                [ok = file:write_file(filename:join(Dir, Name), integer_to_list(Limit))
                 || Name <- ["memory.limit_in_bytes", "memory.max"], filelib:is_file(filename:join(Dir, Name))],
                Shell = "echo $$ > " ++ Dir ++ "/cgroup.procs; ",
                ?assertEqual([ok, ok], in_node(group_memory, [], Shell)),
                %% The limit is one: without the guest's own it ends the VM, and nothing else.
                ?assertError({node_died, 137, _}, in_node(group_exceeded, [], Shell))
            after
                no_group(Dir)
            end;
        _ ->
            ?assertEqual([ok, ok], in_node(group_memory, [], "ulimit -v 60000000; ")),
            {comment, "no control group can be made here: limited by address space"}
    end.

%% 2 GB in all, never more than 180 MB at once.
group_memory() ->
    Mod = mod(memory),
    undisturbed(fun() ->
        [begin
             Insts = [wasmtime_test:inst(Mod, #{memory_limit => 960 * 65536}) || _ <- [1, 2, 3]],
             [begin
                  ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"grow">>, [958])),
                  ?assertEqual({ok, [-1]}, wasmtime:call(Inst, <<"grow">>, [1])),
                  ?assertEqual({ok, []}, wasmtime:call(Inst, <<"fill">>, [0, 7, 960 * 65536]))
              end || Inst <- Insts],
             [ok = wasmtime:destroy(Inst) || Inst <- Insts]
         end || _ <- lists:seq(1, wasmtime_test:rounds(3, 6, 30))]
    end, mod(loop)).

group_exceeded() ->
    Inst = wasmtime_test:inst(mod(memory), #{memory_limit => unlimited}),
    {ok, [2]} = wasmtime:call(Inst, <<"grow">>, [990]),
    Insts = [wasmtime_test:inst(mod(memory), #{}) || _ <- lists:seq(1, 12)],
    [wasmtime:call(I, <<"grow">>, [990]) || I <- Insts],
    [wasmtime:call(I, <<"fill">>, [0, 7, 990 * 65536]) || I <- Insts].

%% A group of our own inside of the one that we are in, if there are groups and they are ours to make.
group(Controller) ->
    {ok, Text} = file:read_file("/proc/self/cgroup"),
    Lines = [binary:split(Line, <<":">>, [global]) || Line <- binary:split(Text, <<"\n">>, [global, trim])],
    Found = [filename:join(["/sys/fs/cgroup", Controller ++ binary_to_list(Path), name()])
             || [_, Names, Path] <- Lines, lists:member(list_to_binary(Controller), binary:split(Names, <<",">>, [global]))],
    Unified = [filename:join(["/sys/fs/cgroup" ++ binary_to_list(Path), name()]) || [<<"0">>, <<>>, Path] <- Lines],
    made([Dir || Dir <- Found ++ Unified], Controller).

name() -> "wasmtime_exhaustion_" ++ os:getpid().

made([], _) -> none;
made([Dir | Others], Controller) ->
    case file:make_dir(Dir) of
        ok ->
            case filelib:wildcard(filename:join(Dir, Controller ++ ".*max*") ) of
                [_ | _] -> {ok, Dir};
                [] -> no_group(Dir), made(Others, Controller)
            end;
        {error, _} -> made(Others, Controller)
    end.

%% Its processes are gone, but the kernel may need a moment to know.
no_group(Dir) -> wait_until(fun() -> file:del_dir(Dir) =:= ok end).
