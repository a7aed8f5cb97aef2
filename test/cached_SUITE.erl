%% Modules that are made once and kept in a directory: by many processes and nodes at once, some of
%% which die, on disks that are full, and with files that are not what they were.
-module(cached_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [temp/2, write/3, in_process/1]).
-import(cached_node, [start/1, result/1, kill/1]).

-define(KEY, <<"the key of a cache">>).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% A folder that only its user can write to, whatever the umask.
dir(Config) ->
    Dir = temp(Config, "cache"),
    ok = file:change_mode(Dir, 8#700),
    Dir.

cached(Source, Dir) -> cached(Source, Dir, #{}).

%% The module and what was told of it.
cached(Source, Dir, Opts) ->
    Self = self(),
    Ref = make_ref(),
    Report = fun(Event) -> Self ! {Ref, Event} end,
    Result = wasmtime:cached(Source, Dir, maps:merge(#{report => Report}, Opts)),
    receive {Ref, Event} -> {Result, Event} after 0 -> {Result, nothing} end.

%% What was told, of a module that works.
event(Source, Dir, Opts) ->
    {{ok, Mod}, Event} = cached(Source, Dir, Opts),
    works(Mod),
    Event.

works(Mod) ->
    {ok, Inst} = wasmtime:instantiate(Mod),
    ?assertEqual({ok, <<"image">>}, wasmtime:read_memory(Inst, 16, 5)),
    wasmtime:destroy(Inst).

memory() -> wasmtime_test:source(memory).

entries(Dir) -> filelib:wildcard("*.cwasm", Dir).

entry(Dir) ->
    [Name] = entries(Dir),
    filename:join(Dir, Name).

%% Made the first time, found the second; nothing else is in the directory.
t_made_once(Config) ->
    Dir = dir(Config),
    [?assertEqual(Event, event(memory(), Dir, #{})) || Event <- [made, hit, hit]],
    ?assertEqual({ok, entries(Dir)}, file:list_dir(Dir)),
    ?assertMatch({ok, _}, wasmtime:deserialize_file(entry(Dir))).

%% Text, bytes and a function each make an entry; the function is not called again.
t_sources(Config) ->
    Dir = dir(Config),
    Self = self(),
    Fun = fun() -> Self ! called, {ok, wasmtime_test:wasm(memory)} end,
    Sources = [{memory(), #{}}, {wasmtime_test:wasm(memory), #{}}, {Fun, #{version => 1}}],
    [?assertEqual(Event, event(Source, Dir, Opts)) || Event <- [made, hit], {Source, Opts} <- Sources],
    ?assertEqual([called], wasmtime_test:mailbox()),
    ?assertEqual(3, length(entries(Dir))).

%% A directory is made if need be, and nobody else can look into what was made.
t_permissions(Config) ->
    Dir = filename:join([dir(Config), "a", "höhe"]),
    ?assertEqual(made, event(memory(), Dir, #{})),
    [?assertEqual(8#700, mode(D)) || D <- [Dir, filename:dirname(Dir)]],
    ?assertEqual(8#600, mode(entry(Dir))),
    ?assertEqual(hit, event(memory(), unicode:characters_to_binary(Dir), #{})).

mode(Path) ->
    {ok, #file_info{mode = Mode}} = file:read_file_info(Path),
    Mode band 8#777.

%% Whatever goes into an artifact makes an entry of its own, and finds it again.
t_everything_counts(Config) ->
    Dir = dir(Config),
    SetUp = wasmtime_test:source(cached_setup),
    Plain = [#{}, #{fuel => true}, #{opt_level => none}, #{proposals => #{simd => false}},
             #{proposals => #{tail_call => false}}, #{version => 1}, #{version => <<"1">>},
             #{key => ?KEY}, #{key => <<"another">>}],
    Preinit = [{#{}, []}, {#{}, ["set"]}, {#{}, [{"put", [1]}]}, {#{}, [{"put", [2]}]},
               {#{}, ["set", "set"]}, {#{remove_exports => ["set"]}, ["set"]},
               {#{memory_limit => 1 bsl 20}, ["set"]}, {#{compile => #{opt_level => none}}, ["set"]},
               {#{wasi => #{}}, ["set"]}, {#{wasi => #{args => ["a"]}}, ["set"]},
               {#{wasi => #{stdin => {binary, "a"}}}, ["set"]}],
    All = [{memory(), Opts} || Opts <- Plain] ++ [{SetUp, #{preinit => P}} || P <- Preinit],
    [?assertMatch({Opts, {{ok, _}, made}}, {Opts, cached(Source, Dir, Opts)}) || {Source, Opts} <- All],
    ?assertEqual(length(All), length(entries(Dir))),
    [?assertMatch({Opts, {{ok, _}, hit}}, {Opts, cached(Source, Dir, Opts)}) || {Source, Opts} <- All].

%% What does not go in makes none: where instances live, how it is spelled, who serves the set-up.
t_what_does_not_count(Config) ->
    Dir = dir(Config),
    ?assertEqual(made, event(memory(), Dir, #{})),
    [?assertEqual(hit, event(memory(), Dir, Opts))
     || Opts <- [wasmtime_test:pool(#{}), #{fuel => false}, #{opt_level => speed}, #{check => metadata},
                 #{wait => infinity}, #{proposals => #{}}]],
    SetUp = wasmtime_test:source(cached_setup),
    ?assertMatch({{ok, _}, made}, cached(SetUp, Dir, #{preinit => {#{}, ["set"]}})),
    [?assertMatch({{ok, _}, hit}, cached(SetUp, Dir, #{preinit => P}))
     || P <- [{#{}, [<<"set">>]}, {#{}, [{[$s, "et"], []}]}, {#{remove_exports => []}, ["set"]}]],
    in_process(fun() ->
        ?assertMatch({{ok, _}, hit}, cached(SetUp, Dir, #{preinit => {#{}, ["set"]}}))
    end).

%% The set-up is run once, and its state is in what is found.
t_preinit(Config) ->
    Dir = dir(Config),
    Self = self(),
    Init = fun(Inst) ->
        Self ! set_up,
        {ok, []} = wasmtime:call(Inst, "put", [42]),
        ok
    end,
    [begin
         {{ok, Mod}, Event} = cached(wasmtime_test:source(cached_setup), Dir,
                                     #{preinit => {#{}, Init}, version => 1}),
         {ok, Inst} = wasmtime:instantiate(Mod),
         ?assertEqual({ok, [42]}, wasmtime:call(Inst, "get", []))
     end || Event <- [made, hit, hit]],
    ?assertEqual([set_up], wasmtime_test:mailbox()).

%% What has no bytes of its own needs a version.
t_version_is_needed(Config) ->
    Dir = dir(Config),
    Import = #{{"a", "b"} => fun(_, _) -> {ok, []} end},
    Wasi = fun(Opts) -> #{preinit => {#{wasi => Opts}, ["set"]}} end,
    SetUp = wasmtime_test:source(cached_setup),
    Path = write(Dir, "stdin", <<"x">>),
    [begin
         ?assertMatch({Opts, {error, #{class := compile, kind := badarg, key := version}}},
                      {Opts, wasmtime:cached(Source, Dir, Opts)}),
         ?assertMatch({Opts, {{ok, _}, made}}, {Opts, cached(Source, Dir, Opts#{version => 1})})
     end || {Source, Opts} <- [{fun() -> {ok, SetUp} end, #{}},
                               {SetUp, #{preinit => {#{}, fun(_) -> ok end}}},
                               {SetUp, #{preinit => {Import, ["set"]}}},
                               {SetUp, Wasi(#{dirs => [{"/", Dir, read}]})},
                               {SetUp, Wasi(#{env => inherit})},
                               {SetUp, Wasi(#{stdin => {file, Path}})}]],
    ?assertMatch({{ok, _}, made}, cached(SetUp, Dir, Wasi(#{env => [{"A", "b"}]}))).

%% ---- many at once ---------------------------------------------------------------------------

%% Of many processes one makes it, and all have it.
t_processes(Config) ->
    Dir = dir(Config),
    Made = counters:new(1, []),
    Source = fun() -> counters:add(Made, 1, 1), timer:sleep(100), {ok, memory()} end,
    Opts = #{version => 1, wait => infinity},
    Callers = [wasmtime_test:caller(fun() -> event(Source, Dir, Opts) end) || _ <- lists:seq(1, 30)],
    Events = [receive {Pid, Event} -> Event end || {Pid, _} <- Callers],
    ?assertEqual(1, counters:get(Made, 1)),
    ?assertEqual([made], Events -- lists:duplicate(29, hit)),
    ?assertEqual({ok, entries(Dir)}, file:list_dir(Dir)).

%% So it is with nodes of the operating system.
t_nodes(Config) ->
    Dir = dir(Config),
    Nodes = [start({?MODULE, node_caches, [Dir, #{wait => infinity}]}) || _ <- lists:seq(1, 3)],
    Events = lists:append([result(Node) || Node <- Nodes]),
    ?assertEqual([made], Events -- lists:duplicate(14, hit)),
    ?assertEqual({ok, entries(Dir)}, file:list_dir(Dir)),
    ?assertEqual(hit, event(memory(), Dir, #{})).

%% Nodes that do not wait for each other make it at the same time: one file is left, and it is good.
t_nodes_that_do_not_wait(Config) ->
    Dir = dir(Config),
    Opts = #{wait => 0, key => ?KEY},
    Nodes = [start({?MODULE, node_caches, [Dir, Opts]}) || _ <- lists:seq(1, 3)],
    [?assertEqual(5, length(result(Node))) || Node <- Nodes],
    ?assertEqual({ok, entries(Dir)}, file:list_dir(Dir)),
    ?assertEqual(hit, event(memory(), Dir, Opts)).

node_caches(Dir, Opts) ->
    [event(memory(), Dir, Opts) || _ <- lists:seq(1, 5)].

%% A node that is killed while it makes an entry holds nobody up.
t_killed_while_making(Config) ->
    Dir = dir(Config),
    Node = start({?MODULE, node_hangs, [Dir]}),
    wasmtime_test:wait_until(fun() -> filelib:is_file(filename:join(Dir, "making")) end, 60_000),
    ?assertEqual(1, length(filelib:wildcard("*.lock", Dir))),
    Waiter = wasmtime_test:caller(fun() -> hanging(Dir, fun() -> {ok, memory()} end) end),
    timer:sleep(50),
    ok = kill(Node),
    {Pid, _} = Waiter,
    receive {Pid, Event} -> ?assertEqual(made, Event) end,
    ?assertEqual([], filelib:wildcard("*.lock", Dir)).

node_hangs(Dir) ->
    hanging(Dir, fun() ->
        ok = file:write_file(filename:join(Dir, "making"), <<>>),
        timer:sleep(infinity)
    end).

hanging(Dir, Source) -> event(Source, Dir, #{version => 1, wait => infinity}).

%% Killed at any moment, a node leaves a good entry or none.
t_killed_at_any_time(Config) ->
    Dir = dir(Config),
    [begin
         Node = start({?MODULE, node_makes, [Dir, I]}),
         wasmtime_test:wait_until(fun() -> filelib:is_file(filename:join(Dir, "start")) end, 60_000),
         timer:sleep(rand:uniform(400)),
         ok = kill(Node),
         ok = file:delete(filename:join(Dir, "start")),
         Large = large(),
         Events = [event(Large, Dir, #{version => {I, J}, wait => infinity}) || J <- lists:seq(1, 8)],
         ?assertEqual([], lists:usort(Events) -- [hit, made]),
         [ok = file:delete(Path) || Path <- filelib:wildcard(filename:join(Dir, "*.cwasm"))]
     end || I <- lists:seq(1, wasmtime_test:rounds(4, 20, 100))].

node_makes(Dir, I) ->
    Large = large(),
    _ = wasmtime:compile(Large),
    ok = file:write_file(filename:join(Dir, "start"), <<>>),
    [event(Large, Dir, #{version => {I, J}}) || J <- lists:seq(1, 8)],
    %% Whoever kills it finds it.
    timer:sleep(infinity).

%% What takes most of its time to be written.
large() ->
    Text = ["(module (memory (export \"memory\") 160) (data (i32.const 16) \"image",
            binary:copy(<<"x">>, 10_000_000), "\"))"],
    {ok, Wasm} = wasmtime:wat2wasm(iolist_to_binary(Text)),
    Wasm.

%% A maker that is stuck is waited for as long as `wait' says; once it is dead, no longer.
t_stuck(Config) ->
    Dir = dir(Config),
    Self = self(),
    Stuck = spawn(fun() -> hanging(Dir, fun() -> Self ! stuck, timer:sleep(infinity) end) end),
    receive stuck -> ok end,
    Source = fun() -> {ok, memory()} end,
    ?assertEqual(made, event(Source, Dir, #{version => 1, wait => 100})),
    ok = file:delete(entry(Dir)),
    {Pid, _} = wasmtime_test:caller(fun() -> hanging(Dir, Source) end),
    exit(Stuck, kill),
    receive {Pid, Event} -> ?assertEqual(made, Event) end.

%% A set-up that asks for itself waits for itself no longer than `wait'.
t_inside_itself(Config) ->
    Dir = dir(Config),
    Inner = fun() -> {ok, memory()} end,
    Outer = fun() ->
        made = event(Inner, Dir, #{version => 1, wait => 10}),
        {ok, memory()}
    end,
    ?assertEqual(made, event(Outer, Dir, #{version => 1})).

%% ---- wrong use ------------------------------------------------------------------------------

t_badarg(Config) ->
    Dir = dir(Config),
    [?assertMatch({Opts, {error, #{kind := badarg, key := Key}}},
                  {Opts, wasmtime:cached(memory(), Dir, Opts)})
     || {Key, Opts} <- [{key, #{key => <<>>}}, {key, #{key => "k"}}, {check, #{check => all}},
                        {wait, #{wait => -1}}, {wait, #{wait => soon}}, {report, #{report => self()}},
                        {report, #{report => fun() -> ok end}}, {preinit, #{preinit => ["set"]}},
                        {preinit, #{preinit => {[], ["set"]}}}, {fuel, #{fuel => 1}},
                        {nonsense, #{nonsense => 1}}, {memory_limit, #{preinit => {#{memory_limit => a}, []}}}]],
    ?assertMatch({error, #{class := preinit, kind := badarg}},
                 wasmtime:cached(memory(), Dir, #{preinit => {#{}, 1}})),
    ?assertMatch({error, #{class := compile, kind := badarg}}, wasmtime:cached(memory(), Dir, [])),
    [?assertMatch({error, #{class := compile, kind := badarg, key := directory}},
                  wasmtime:cached(memory(), Bad, #{})) || Bad <- [<<>>, "", <<"a", 0>>, dir, 1]],
    [?assertError(badarg, wasmtime:cached(Bad, Dir, #{}))
     || Bad <- [1, wasm, "text", {wat, 1}, {wat, "x", 1}, fun(_) -> ok end]],
    ?assertEqual([], entries(Dir)).

%% What cannot be made is an error, and no entry.
t_failures(Config) ->
    Dir = dir(Config),
    Fun = fun(Do) -> wasmtime:cached(Do, Dir, #{version => 1}) end,
    [?assertMatch({error, #{class := compile, kind := badarg, key := source}}, Fun(Do))
     || Do <- [fun() -> error(oops) end, fun() -> exit(oops) end, fun() -> throw(oops) end,
               fun() -> <<>> end, fun() -> {ok, a} end, fun() -> {error, enoent} end]],
    Error = wasmtime:compile({wat, "(module"}),
    ?assertEqual(Error, Fun(fun() -> Error end)),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), Fun(fun() -> {ok, <<"x">>} end)),
    ?assertMatch(?WASMTIME_ERROR(compile, malformed), wasmtime:cached(<<"x">>, Dir, #{})),
    ?assertMatch(?WASMTIME_ERROR(call, unknown_export),
                 wasmtime:cached(memory(), Dir, #{preinit => {#{}, ["nonsense"]}})),
    ?assertEqual({ok, []}, file:list_dir(Dir)).
