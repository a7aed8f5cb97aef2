%% The files of a cache: damaged, foreign, on full disks, in directories that others can write to.
-module(cached_files_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(cached_SUITE, [dir/1, cached/3, event/3, works/1, memory/0, entries/1, entry/1]).
-import(wasmtime_test, [temp/2, write/3]).

-define(KEY, <<"the key of a cache">>).
-define(DAY, 86_400).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

keys() -> [#{}, #{key => ?KEY}].

%% An entry that was cut, damaged, emptied or replaced by something else is made again, once.
t_damaged(Config) ->
    Dir = dir(Config),
    [begin
         [file:delete(filename:join(Dir, Name)) || Name <- entries(Dir)],
         made = event(memory(), Dir, Key),
         {ok, Good} = file:read_file(entry(Dir)),
         Size = byte_size(Good),
         Cuts = [binary:part(Good, 0, Length) || Length <- [0, 1, 4096, Size div 2, Size - 84, Size - 1]],
         Flips = [flip(Good, At) || At <- [0, 4096, Size div 2, Size - 60, Size - 1]],
         {ok, Other} = wasmtime:serialize(wasmtime_test:mod(add, #{fuel => true}), Key),
         [made_again(Dir, Key, Bad) || Bad <- Cuts ++ Flips ++ [<<Good/binary, 0>>, Other]]
     end || Key <- keys()].

made_again(Dir, Key, Bad) ->
    Path = entry(Dir),
    _ = write(Dir, filename:basename(Path), Bad),
    ?assertMatch({replaced, #{class := compile}}, event(memory(), Dir, Key)),
    ?assertEqual(hit, event(memory(), Dir, Key)),
    ?assertEqual({ok, entries(Dir)}, file:list_dir(Dir)).

flip(Bin, At) ->
    <<Before:At/binary, Byte, After/binary>> = Bin,
    <<Before/binary, (Byte bxor 1), After/binary>>.

%% With a key, one entry's file is not good in place of another's, and none is good that has no key.
t_swapped(Config) ->
    Dir = dir(Config),
    Opts = #{key => ?KEY},
    made = event(memory(), Dir, Opts),
    First = entry(Dir),
    made = event(memory(), Dir, Opts#{version => 2}),
    [Second] = [filename:join(Dir, Name) || Name <- entries(Dir)] -- [First],
    {ok, Bin} = file:read_file(First),
    {ok, Plain} = wasmtime:serialize(wasmtime_test:mod(memory)),
    {ok, Sealed} = wasmtime:serialize(wasmtime_test:mod(memory), Opts),
    [begin
         _ = write(Dir, filename:basename(Second), Bad),
         ?assertMatch({replaced, #{kind := untrusted}}, event(memory(), Dir, Opts#{version => 2})),
         ?assertEqual(hit, event(memory(), Dir, Opts#{version => 2}))
     end || Bad <- [Bin, Plain, Sealed]],
    ?assertEqual(hit, event(memory(), Dir, Opts)).

%% `check => metadata' trusts what lies there, as deserialize_file/2 does.
t_check(Config) ->
    Dir = dir(Config),
    made = event(memory(), Dir, #{}),
    {ok, Good} = file:read_file(entry(Dir)),
    %% A byte of the memory that an instance begins with.
    _ = write(Dir, filename:basename(entry(Dir)), flip(Good, byte_size(Good) - 4096)),
    ?assertMatch({{ok, _}, hit}, cached(memory(), Dir, #{check => metadata})),
    ?assertMatch({{ok, _}, {replaced, #{kind := corrupted}}}, cached(memory(), Dir, #{})).

%% A node that may not write so much still has its module, and leaves no piece of a file. (The guest
%% has no memory: an image would be a file of its own.)
t_file_too_large(Config) ->
    Dir = dir(Config),
    Node = cached_node:start({?MODULE, adds, [Dir]}, "trap '' XFSZ; ulimit -f 4; "),
    ?assertMatch({not_stored, #{class := compile, kind := file}}, cached_node:result(Node)),
    ?assertEqual({ok, []}, file:list_dir(Dir)),
    ?assertEqual(made, adds(Dir)),
    ?assert(filelib:file_size(entry(Dir)) > 4 * 1024).

adds(Dir) ->
    {{ok, Mod}, Event} = cached(wasmtime_test:source(add), Dir, #{}),
    {ok, Inst} = wasmtime:instantiate(Mod),
    {ok, [3]} = wasmtime:call(Inst, "add", [1, 2]),
    Event.

%% The same on a disk that is full, where a test may have one.
t_full_disk(Config) ->
    Dir = dir(Config),
    {ok, Bin} = wasmtime:serialize(wasmtime_test:mod(memory)),
    ?assert(byte_size(Bin) > 32768),
    case os:cmd("mount -t tmpfs -o size=32k,mode=700 tmpfs '" ++ Dir ++ "' 2>&1") of
        [] ->
            try
                [?assertMatch({not_stored, #{class := compile, kind := file}},
                              event(memory(), Dir, Key)) || Key <- keys()],
                ?assertEqual({ok, []}, file:list_dir(Dir))
            after
                [] = os:cmd("umount '" ++ Dir ++ "' 2>&1")
            end;
        Refused ->
            %% Not root: t_file_too_large is what can be shown.
            ct:comment("no tmpfs: ~ts", [Refused])
    end,
    ?assertEqual(made, event(memory(), Dir, #{})).

%% Where there can be no directory, there is no cache; the module is made.
t_no_directory(Config) ->
    File = write(dir(Config), "file", <<"x">>),
    [?assertMatch({not_stored, #{class := compile, kind := file}}, event(memory(), Dir, Opts))
     || Dir <- [File, filename:join(File, "x"), "/proc/wasmtime/cache"], Opts <- keys()],
    ?assertEqual({ok, <<"x">>}, file:read_file(File)).

%% A directory in the place of an entry is left alone.
t_directory_as_entry(Config) ->
    Dir = dir(Config),
    made = event(memory(), Dir, #{}),
    Path = entry(Dir),
    ok = file:delete(Path),
    ok = file:make_dir(Path),
    ?assertMatch({not_stored, #{kind := file}}, event(memory(), Dir, #{})),
    ?assertEqual({ok, [filename:basename(Path)]}, file:list_dir(Dir)).

%% Without a key the directory must be one that nobody else can write to.
t_writable_by_others(Config) ->
    Dir = dir(Config),
    [begin
         ok = file:change_mode(Dir, Mode),
         ?assertMatch(?WASMTIME_ERROR(compile, untrusted), wasmtime:cached(memory(), Dir, #{})),
         ?assertMatch({{ok, _}, _}, cached(memory(), Dir, #{key => ?KEY}))
     end || Mode <- [8#777, 8#1777, 8#775, 8#757, 8#720, 8#702]],
    ok = file:change_mode(Dir, 8#755),
    ?assertEqual(made, event(memory(), Dir, #{})),
    case os:cmd("chown 12345 '" ++ Dir ++ "' 2>&1") of
        [] ->
            ?assertMatch(?WASMTIME_ERROR(compile, untrusted), wasmtime:cached(memory(), Dir, #{})),
            ?assertEqual(hit, event(memory(), Dir, #{key => ?KEY}));
        Refused ->
            ct:comment("not root: ~ts", [Refused])
    end.

%% A lock or an entry that somebody made a link to elsewhere harms nothing there.
t_links(Config) ->
    Dir = dir(Config),
    made = event(memory(), Dir, #{key => ?KEY}),
    Path = entry(Dir),
    Victim = write(temp(Config, "elsewhere"), "victim", <<"precious">>),
    Lock = filename:rootname(Path) ++ ".lock",
    ok = file:delete(Path),
    [ok = file:make_symlink(Victim, Link) || Link <- [Path, Lock]],
    ?assertMatch({replaced, #{kind := untrusted}}, event(memory(), Dir, #{key => ?KEY})),
    ?assertEqual({ok, <<"precious">>}, file:read_file(Victim)),
    ?assertEqual(hit, event(memory(), Dir, #{key => ?KEY})).

%% What makers that died left behind goes an hour later; what is young or not ours stays.
t_left_behind(Config) ->
    Dir = dir(Config),
    Name = binary_to_list(binary:copy(<<"0a">>, 32)),
    Temporary = fun(Suffix) -> Name ++ "." ++ Suffix ++ ".tmp" end,
    Old = [Temporary("0123456789abcdef"), Name ++ ".lock"],
    Kept = [Temporary("x"), "notes.tmp", ".lock", Name ++ ".cwasm"],
    Young = [Temporary("fedcba9876543210")],
    [age(write(Dir, File, <<"x">>), 3700) || File <- Old ++ Kept],
    [write(Dir, File, <<"x">>) || File <- Young],
    ?assertEqual(made, event(memory(), Dir, #{})),
    {ok, Left} = file:list_dir(Dir),
    ?assertEqual(lists:sort(Kept ++ Young), lists:sort(Left -- [filename:basename(E) || E <- entries(Dir),
                                                               E =/= Name ++ ".cwasm"])).

%% An entry that is used stays young, so that old ones are those that nobody uses.
t_used_entries_are_young(Config) ->
    Dir = dir(Config),
    made = event(memory(), Dir, #{}),
    Path = entry(Dir),
    [begin
         age(Path, Seconds),
         hit = event(memory(), Dir, #{}),
         ?assert(seconds(Path) < Least)
     end || {Seconds, Least} <- [{?DAY + 100, 100}, {30 * ?DAY, 100}, {1000, ?DAY}]],
    ?assert(seconds(Path) >= 1000).

age(Path, Seconds) ->
    Time = os:system_time(second) - Seconds,
    ok = file:write_file_info(Path, #file_info{mtime = Time}, [{time, posix}]).

seconds(Path) ->
    {ok, #file_info{mtime = Time}} = file:read_file_info(Path, [{time, posix}]),
    os:system_time(second) - Time.

%% Entries may go at any time; modules of theirs work on.
t_deleted(Config) ->
    Dir = dir(Config),
    made = event(memory(), Dir, #{}),
    {{ok, Mod}, hit} = cached(memory(), Dir, #{}),
    ok = file:delete(entry(Dir)),
    works(Mod),
    ?assertEqual(made, event(memory(), Dir, #{})),
    works(Mod).

%% Neither hits nor misses leave open files, locks or modules.
t_nothing_is_left(Config) ->
    Dir = dir(Config),
    Once = fun(I) ->
        wasmtime_test:in_process(fun() ->
            [event(memory(), Dir, Key#{version => I}) || Key <- keys(), _ <- [1, 2]],
            {error, _} = wasmtime:cached(<<"x">>, Dir, #{}),
            exit_in_source(Dir)
        end)
    end,
    Once(0),
    Live = objects(),
    {_, Files} = wasmtime_test:resources(),
    [Once(I) || I <- lists:seq(1, wasmtime_test:rounds(5, 30, 300))],
    ?assertEqual(Live, objects()),
    wasmtime_test:wait_until(fun() -> element(2, wasmtime_test:resources()) =< Files end).

%% Parked threads end when they like.
objects() -> maps:remove(threads_parked, wasmtime_test:settled()).

%% A process that dies as a maker.
exit_in_source(Dir) ->
    Source = fun() -> exit(self(), kill), timer:sleep(infinity) end,
    {Pid, Monitor} = spawn_monitor(fun() -> wasmtime:cached(Source, Dir, #{version => dead}) end),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end.

%% Without `report', what is wrong with a cache is logged, and nothing else is.
t_log(Config) ->
    Dir = dir(Config),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self(), level => warning}),
    try
        {ok, _} = wasmtime:cached(memory(), Dir, #{}),
        {ok, _} = wasmtime:cached(memory(), Dir, #{}),
        ?assertEqual([], wasmtime_test:mailbox()),
        _ = write(Dir, filename:basename(entry(Dir)), <<"x">>),
        {ok, _} = wasmtime:cached(memory(), Dir, #{}),
        ?assertMatch([{logged, warning}], wasmtime_test:mailbox()),
        {ok, _} = wasmtime:cached(memory(), "/proc/wasmtime/cache", #{}),
        ?assertMatch([_, {logged, warning}], wasmtime_test:mailbox())
    after
        ok = logger:remove_handler(?MODULE)
    end.

log(#{level := Level}, #{config := Pid}) -> Pid ! {logged, Level}.
