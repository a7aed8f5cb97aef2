%% WASI preview 1: what the guest is granted, and that it is granted no more. The guest exports each
%% function of WASI under its own name; the cases drive it as a C program would.
-module(wasi_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, temp/2, write/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(BADF, 8).
-define(NOENT, 44).
-define(NOTSUP_CLOCK, 76).
%% Where strings and results go in the guest's memory.
-define(TEXT, 1024).
-define(TEXT2, 2048).
-define(OUT, 512).
%% path_open's flags.
-define(CREAT, 1).
-define(TRUNC, 8).
-define(READ, 2).
-define(WRITE, 64).

with(Wasi, Fun) -> wasmtime_test:with_inst(wasi, #{wasi => Wasi}, Fun).

call(Inst, Name, Args) ->
    {ok, [Errno]} = wasmtime:call(Inst, atom_to_binary(Name), Args),
    Errno.

u32(Inst, At) ->
    {ok, <<Value:32/little>>} = wasmtime:read_memory(Inst, At, 4),
    Value.

fd_write(Inst, Fd, Data) ->
    ok = wasmtime:write_memory(Inst, ?TEXT, Data),
    ok = wasmtime:write_memory(Inst, 0, <<?TEXT:32/little, (byte_size(Data)):32/little>>),
    case call(Inst, fd_write, [Fd, 0, 1, ?OUT]) of
        0 -> {ok, u32(Inst, ?OUT)};
        Errno -> Errno
    end.

fd_read(Inst, Fd, Length) ->
    ok = wasmtime:write_memory(Inst, 0, <<?TEXT:32/little, Length:32/little>>),
    case call(Inst, fd_read, [Fd, 0, 1, ?OUT]) of
        0 -> wasmtime:read_memory(Inst, ?TEXT, u32(Inst, ?OUT));
        Errno -> Errno
    end.

path(Inst, At, Path) ->
    ok = wasmtime:write_memory(Inst, At, Path),
    byte_size(Path).

open(Inst, Path, Flags, Rights) ->
    Length = path(Inst, ?TEXT, Path),
    case call(Inst, path_open, [3, 1, ?TEXT, Length, Flags, Rights, 0, 0, ?OUT]) of
        0 -> {ok, u32(Inst, ?OUT)};
        Errno -> Errno
    end.

call(Inst, Name, Fd, Path, Rest) ->
    Length = path(Inst, ?TEXT, Path),
    call(Inst, Name, [Fd, ?TEXT, Length | Rest]).

%% ---- linking --------------------------------------------------------------------------------

%% Without `wasi' its functions are not there.
t_not_linked(_) ->
    {error, #{message := Message}} = wasmtime_test:instantiate(mod(import_wasi)),
    ?assertMatch({_, {_, _}}, {Message, binary:match(Message, <<"wasi_snapshot_preview1.proc_exit">>)}),
    ?assertMatch({_, {_, _}}, {Message, binary:match(Message, <<"option wasi">>)}),
    ?assertMatch(?WASMTIME_ERROR(link, unknown_import), wasmtime_test:instantiate(mod(import_wasi))).

%% An import of the user's takes the place of WASI's.
t_overridden(_) ->
    Opts = #{wasi => #{},
             {"wasi_snapshot_preview1", "proc_exit"} => fun(_, [S]) -> self() ! {exit, S}, {ok, []} end},
    wasmtime_test:with_inst(import_wasi, Opts, fun(Inst) ->
        ?assertEqual({ok, []}, wasmtime:call(Inst, <<"exit">>, [5])),
        receive {exit, 5} -> ok after 1000 -> error(not_called) end
    end).

%% ---- exit -----------------------------------------------------------------------------------

%% Status 0 is success, any other an exit error with the status.
t_exit(_) ->
    [wasmtime_test:with_inst(import_wasi, #{wasi => #{}}, fun(Inst) ->
        Result = wasmtime:call(Inst, <<"exit">>, [Status]),
        case Status of
            0 -> ?assertEqual({ok, []}, Result);
            _ -> ?assertMatch(?WASMTIME_EXIT(Status), Result)
        end
    end) || Status <- [0, 1, 2, 125, 126, 255]].

%% ---- arguments, environment -----------------------------------------------------------------

t_args(_) ->
    with(#{args => ["prog", <<"two words">>, "ü"]}, fun(Inst) ->
        ?assertEqual([<<"prog">>, <<"two words">>, <<"ü"/utf8>>], strings(Inst, args_sizes_get, args_get))
    end),
    with(#{}, fun(Inst) -> ?assertEqual([], strings(Inst, args_sizes_get, args_get)) end).

t_env(_) ->
    with(#{env => [{"A", "1"}, {<<"B">>, "x=y"}, {"C", ""}]}, fun(Inst) ->
        ?assertEqual([<<"A=1">>, <<"B=x=y">>, <<"C=">>],
                     strings(Inst, environ_sizes_get, environ_get))
    end),
    with(#{}, fun(Inst) -> ?assertEqual([], strings(Inst, environ_sizes_get, environ_get)) end).

%% The node's own environment, when asked for: what was set in Erlang is seen, what was removed is not.
t_env_inherit(_) ->
    Names = ["WASMTIME_TEST_SECRET", "WASMTIME_TEST_WORD", "WASMTIME_TEST_LATER"],
    Seen = fun(Inst) ->
        [Variable || <<"WASMTIME_TEST_", Variable/binary>> <- strings(Inst, environ_sizes_get, environ_get)]
    end,
    os:putenv("WASMTIME_TEST_SECRET", "x"),
    os:putenv("WASMTIME_TEST_WORD", [16#4E2D, $=, 228]),
    try
        with(#{env => inherit}, fun(Inst) ->
            Path = list_to_binary("PATH=" ++ os:getenv("PATH")),
            ?assert(lists:member(Path, strings(Inst, environ_sizes_get, environ_get))),
            ?assertEqual([<<"SECRET=x">>, <<"WORD=\x{4E2D}=ä"/utf8>>], lists:sort(Seen(Inst)))
        end),
        {ok, Template} = wasmtime_test:prepare(mod(wasi), #{wasi => #{env => inherit}}),
        os:unsetenv("WASMTIME_TEST_SECRET"),
        os:putenv("WASMTIME_TEST_LATER", "y"),
        with(#{env => inherit}, fun(Inst) ->
            ?assertEqual([<<"LATER=y">>, <<"WORD=\x{4E2D}=ä"/utf8>>], lists:sort(Seen(Inst)))
        end),
        %% A template keeps the environment that it was made in.
        {ok, Earlier} = wasmtime:instantiate(Template),
        ?assertEqual([<<"SECRET=x">>, <<"WORD=\x{4E2D}=ä"/utf8>>], lists:sort(Seen(Earlier))),
        ok = wasmtime:destroy(Earlier)
    after
        [os:unsetenv(Name) || Name <- Names]
    end.

strings(Inst, Sizes, Get) ->
    0 = call(Inst, Sizes, [0, 4]),
    Size = u32(Inst, 4),
    0 = call(Inst, Get, [?TEXT, 65536]),
    {ok, Data} = wasmtime:read_memory(Inst, 65536, Size),
    binary:split(Data, <<0>>, [global, trim]).

%% ---- standard streams -----------------------------------------------------------------------

%% Captured output is taken once, each stream by itself.
t_capture(_) ->
    with(#{stdout => capture, stderr => capture}, fun(Inst) ->
        {ok, 5} = fd_write(Inst, 1, <<"hello">>),
        {ok, 3} = fd_write(Inst, 2, <<"err">>),
        ?assertEqual({ok, {<<"hello">>, <<"err">>, {0, 0}}}, wasmtime:read_output(Inst)),
        {ok, 1} = fd_write(Inst, 1, <<"!">>),
        ?assertEqual({ok, {<<"!">>, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
        ?assertEqual({ok, {<<>>, <<>>, {0, 0}}}, wasmtime:read_output(Inst))
    end).

%% Beyond the limit the guest still sees full writes, and the excess is counted.
t_output_limit(_) ->
    with(#{stdout => capture, stderr => capture, output_limit => 4}, fun(Inst) ->
        {ok, 3} = fd_write(Inst, 1, <<"abc">>),
        {ok, 3} = fd_write(Inst, 1, <<"def">>),
        {ok, 2} = fd_write(Inst, 2, <<"xy">>),
        {ok, 1} = fd_write(Inst, 1, <<"g">>),
        ?assertEqual({ok, {<<"abcd">>, <<"xy">>, {3, 0}}}, wasmtime:read_output(Inst)),
        {ok, 1} = fd_write(Inst, 1, <<"h">>),
        ?assertEqual({ok, {<<"h">>, <<>>, {0, 0}}}, wasmtime:read_output(Inst))
    end).

%% More than is copied on a scheduler, in and out.
t_much_output(_) ->
    [wasmtime_test:with_inst(stdio, #{wasi => #{stdin => {binary, Data}, stdout => capture, args => ["a", Data]}}, fun(Inst) ->
         Size = byte_size(Data),
         ?assertEqual({ok, [Size]}, wasmtime:call(Inst, <<"cat">>, [])),
         ?assertEqual({ok, {Data, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
         ?assertEqual({ok, {<<>>, <<>>, {0, 0}}}, wasmtime:read_output(Inst))
     end) || Size <- [262144, 262145, 3_000_000], Data <- [binary:copy(<<"x">>, Size)]].

%% Without capture the output goes nowhere, and the guest does not notice.
t_no_output(_) ->
    with(#{}, fun(Inst) ->
        ?assertEqual({ok, 5}, fd_write(Inst, 1, <<"hello">>)),
        ?assertEqual({ok, {<<>>, <<>>, {0, 0}}}, wasmtime:read_output(Inst))
    end).

t_output_to_file(Config) ->
    Dir = temp(Config, "out"),
    Out = filename:join(Dir, "out.txt"),
    Err = filename:join(Dir, "err.txt"),
    with(#{stdout => {file, Out}, stderr => {file, list_to_binary(Err)}}, fun(Inst) ->
        {ok, 4} = fd_write(Inst, 1, <<"one\n">>),
        {ok, 3} = fd_write(Inst, 1, <<"two">>),
        {ok, 1} = fd_write(Inst, 2, <<"x">>)
    end),
    ?assertEqual({ok, <<"one\ntwo">>}, file:read_file(Out)),
    ?assertEqual({ok, <<"x">>}, file:read_file(Err)),
    %% Each instance of a template empties it, and so does one with links.
    {ok, Template} = wasmtime_test:prepare(mod(wasi), #{wasi => #{stdout => {file, Out}}}),
    Links = fun() -> wasmtime_test:instantiate(mod(wasi), #{wasi => #{stdout => {file, Out}}, links => [{"x", mod(add)}]}) end,
    [begin
         {ok, Inst} = Make(),
         ?assertEqual({ok, <<>>}, file:read_file(Out)),
         {ok, 4} = fd_write(Inst, 1, <<"more">>),
         ok = wasmtime:destroy(Inst),
         ?assertEqual({ok, <<"more">>}, file:read_file(Out))
     end || Make <- [fun() -> wasmtime:instantiate(Template) end, Links]].

%% A file or folder that cannot be opened refuses the instance, and the option is named.
t_no_file(Config) ->
    Path = filename:join([temp(Config, "nofile"), "missing", "out.txt"]),
    [?assertMatch({Key, {error, #{class := instantiate, kind := badarg, key := Key}}},
                  {Key, wasmtime_test:instantiate(mod(wasi), #{wasi => #{Key => Value}})})
     || {Key, Value} <- [{stdout, {file, Path}}, {stderr, {file, Path}}, {stdin, {file, Path}},
                         {dirs, [{"/", Path, read}]}]].

t_stdin(Config) ->
    Path = write(temp(Config, "in"), "in.txt", <<"from a file">>),
    [with(#{stdin => Stdin}, fun(Inst) -> ?assertEqual(Text, all(Inst, 0)) end)
     || {Stdin, Text} <- [{none, <<>>}, {{binary, <<>>}, <<>>}, {{binary, ["a", <<"bc">>]}, <<"abc">>},
                          {{binary, binary:copy(<<"x">>, 5000)}, binary:copy(<<"x">>, 5000)},
                          {{file, Path}, <<"from a file">>}]].

all(Inst, Fd) ->
    case fd_read(Inst, Fd, 1000) of
        {ok, <<>>} -> <<>>;
        {ok, Data} -> <<Data/binary, (all(Inst, Fd))/binary>>
    end.

%% ---- folders --------------------------------------------------------------------------------

%% The guest sees its folders under its own names, and nothing without any.
t_preopens(Config) ->
    Dir = temp(Config, "pre"),
    with(#{dirs => [{"/data", Dir, read}, {<<"/tmp">>, list_to_binary(Dir), write}]}, fun(Inst) ->
        ?assertEqual([<<"/data">>, <<"/tmp">>], [preopen(Inst, Fd) || Fd <- [3, 4]]),
        ?assertEqual(?BADF, call(Inst, fd_prestat_get, [5, ?OUT]))
    end),
    with(#{}, fun(Inst) -> ?assertEqual(?BADF, call(Inst, fd_prestat_get, [3, ?OUT])) end).

preopen(Inst, Fd) ->
    0 = call(Inst, fd_prestat_get, [Fd, ?OUT]),
    Length = u32(Inst, ?OUT + 4),
    0 = call(Inst, fd_prestat_dir_name, [Fd, ?TEXT, Length]),
    {ok, Name} = wasmtime:read_memory(Inst, ?TEXT, Length),
    Name.

t_read_file(Config) ->
    Dir = temp(Config, "read"),
    write(Dir, "file", <<"contents">>),
    with(#{dirs => [{"/", Dir, read}]}, fun(Inst) ->
        {ok, Fd} = open(Inst, <<"file">>, 0, ?READ),
        ?assertEqual(<<"contents">>, all(Inst, Fd)),
        ?assertEqual(0, call(Inst, fd_close, [Fd])),
        ?assertEqual(?NOENT, open(Inst, <<"missing">>, 0, ?READ))
    end).

t_write_file(Config) ->
    Dir = temp(Config, "write"),
    with(#{dirs => [{"/", Dir, write}]}, fun(Inst) ->
        {ok, Fd} = open(Inst, <<"new">>, ?CREAT, ?READ bor ?WRITE),
        ?assertEqual({ok, 4}, fd_write(Inst, Fd, <<"text">>)),
        ?assertEqual(0, call(Inst, path_create_directory, 3, <<"sub">>, []))
    end),
    ?assertEqual({ok, <<"text">>}, file:read_file(filename:join(Dir, "new"))),
    ?assert(filelib:is_dir(filename:join(Dir, "sub"))).

%% A `read' folder refuses every mutation, and stays as it was.
t_read_only(Config) ->
    Dir = temp(Config, "ro"),
    write(Dir, "file", <<"contents">>),
    ok = file:make_dir(filename:join(Dir, "sub")),
    with(#{dirs => [{"/", Dir, read}]}, fun(Inst) ->
        {ok, Fd} = open(Inst, <<"file">>, 0, ?READ),
        File = byte_size(<<"file">>),
        New = path(Inst, ?TEXT2, <<"new">>),
        Refused = [{create, open(Inst, <<"new">>, ?CREAT, ?READ)},
                   {create_write, open(Inst, <<"new">>, ?CREAT, ?WRITE)},
                   {truncate, open(Inst, <<"file">>, ?TRUNC, ?READ)},
                   {open_write, open(Inst, <<"file">>, 0, ?WRITE)},
                   {write, fd_write(Inst, Fd, <<"x">>)},
                   {set_size, call(Inst, fd_filestat_set_size, [Fd, 0])},
                   {mkdir, call(Inst, path_create_directory, 3, <<"new">>, [])},
                   {rmdir, call(Inst, path_remove_directory, 3, <<"sub">>, [])},
                   {unlink, call(Inst, path_unlink_file, 3, <<"file">>, [])},
                   {rename, call(Inst, path_rename, 3, <<"file">>, [3, ?TEXT2, New])},
                   {link, begin path(Inst, ?TEXT, <<"file">>),
                                call(Inst, path_link, [3, 0, ?TEXT, File, 3, ?TEXT2, New]) end},
                   {symlink, begin path(Inst, ?TEXT, <<"file">>),
                                   call(Inst, path_symlink, [?TEXT, File, 3, ?TEXT2, New]) end},
                   {times, begin path(Inst, ?TEXT, <<"file">>),
                                 call(Inst, path_filestat_set_times, [3, 1, ?TEXT, File, 0, 0, 5])
                           end},
                   {fd_times, call(Inst, fd_filestat_set_times, [Fd, 0, 0, 5])}],
        [?assert(is_integer(Errno) andalso Errno > 0, {What, Errno}) || {What, Errno} <- Refused]
    end),
    {ok, Names} = file:list_dir(Dir),
    ?assertEqual(["file", "sub"], lists:sort(Names)),
    ?assertEqual({ok, <<"contents">>}, file:read_file(filename:join(Dir, "file"))).

%% No path leaves a folder: neither dots, nor an absolute path, nor a symbolic link.
t_escape(Config) ->
    Outer = temp(Config, "outer"),
    write(Outer, "secret", <<"secret">>),
    Dir = temp(Config, "outer/inner"),
    ok = file:make_symlink(filename:join(Outer, "secret"), filename:join(Dir, "absolute")),
    ok = file:make_symlink("../secret", filename:join(Dir, "relative")),
    with(#{dirs => [{"/", Dir, write}]}, fun(Inst) ->
        [?assert(is_integer(open(Inst, Path, 0, ?READ)), Path)
         || Path <- [<<"../secret">>, <<"/etc/passwd">>, <<"absolute">>, <<"relative">>,
                     <<"x/../../secret">>, list_to_binary(filename:join(Outer, "secret"))]]
    end).

%% ---- clocks, randomness ---------------------------------------------------------------------

clock(Inst, Id) ->
    ok = wasmtime:write_memory(Inst, ?OUT, <<-1:64>>),
    Errno = call(Inst, clock_time_get, [Id, 1, ?OUT]),
    {ok, <<Time:64/little>>} = wasmtime:read_memory(Inst, ?OUT, 8),
    {Errno, Time}.

%% The wall clock is the host's; the monotonic clock goes forward.
t_clocks(_) ->
    with(#{}, fun(Inst) ->
        {0, Wall} = clock(Inst, 0),
        ?assert(abs(Wall - erlang:system_time(nanosecond)) < 10_000_000_000),
        {0, First} = clock(Inst, 1),
        {0, Second} = clock(Inst, 1),
        ?assert(Second >= First)
    end).

%% With `monotonic' there is that clock alone; others leave the guest's memory as it was.
t_monotonic_only(_) ->
    with(#{clocks => monotonic}, fun(Inst) ->
        {0, First} = clock(Inst, 1),
        [?assertEqual({Id, {?NOTSUP_CLOCK, (1 bsl 64) - 1}}, {Id, clock(Inst, Id)})
         || Id <- [0, 2, 3]],
        with(#{clocks => monotonic}, fun(Later) ->
            {0, Second} = clock(Later, 1),
            ?assert(Second > First)
        end)
    end).

%% Every instance has randomness of its own.
t_random(_) ->
    Random = fun(Inst) ->
        0 = call(Inst, random_get, [?TEXT, 32]),
        wasmtime:read_memory(Inst, ?TEXT, 32)
    end,
    {ok, A} = with(#{}, Random),
    {ok, B} = with(#{}, Random),
    ?assertNotEqual(A, B),
    ?assertNotEqual(binary:copy(<<0>>, 32), A).

%% ---- isolation ------------------------------------------------------------------------------

%% What one instance is given is not seen by the next of the same module.
t_nothing_is_shared(_) ->
    Mod = mod(wasi),
    Options = fun(Arg) -> #{wasi => #{args => [Arg], stdout => capture}} end,
    [begin
         Inst = wasmtime_test:inst(Mod, Options(Arg)),
         ?assertEqual([Arg], strings(Inst, args_sizes_get, args_get)),
         {ok, _} = fd_write(Inst, 1, Arg),
         ?assertEqual({ok, {Arg, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
         ok = wasmtime:destroy(Inst)
     end || Arg <- [<<"one">>, <<"two">>, <<"three">>]].
